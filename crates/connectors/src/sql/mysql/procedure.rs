//! Calls of stored procedures. `call` knows places only, flow files know names: the server is asked
//! once on a connection which parameters a procedure has.

use expr::Value;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Value as Raw};

use crate::sql::error::{Class, SqlError};
use crate::sql::mysql::values;
use crate::sql::session::{Procedure, Statement};

/// How a procedure is called.
pub struct Plan {
    /// `call` with a place for each parameter.
    pub text: String,
    parameters: Vec<Parameter>,
}

struct Parameter {
    name: String,
    /// The argument that goes in.
    argument: Option<usize>,
    comes_out: bool,
}

/// What the server says of parameters: name and `IN`, `OUT` or `INOUT`.
type Known = Vec<(String, String)>;

impl Plan {
    /// Asks for the parameters.
    pub async fn ask(
        connection: &mut Conn,
        procedure: &Procedure,
    ) -> Result<Result<Self, SqlError>, mysql_async::Error> {
        let (schema, name) = match procedure.name.split_once('.') {
            Some((schema, name)) => (Some(schema), name),
            None => (None, procedure.name.as_str()),
        };
        let question = "select parameter_name, parameter_mode from information_schema.parameters \
             where specific_schema = ifnull(?, database()) and specific_name = ? \
             and routine_type = 'PROCEDURE' order by ordinal_position";
        let known: Known = connection.exec(question, (schema, name)).await?;
        Ok(Self::new(procedure, known))
    }

    fn new(procedure: &Procedure, known: Known) -> Result<Self, SqlError> {
        let outs = procedure.outs.iter().map(|out| &out.name);
        let unknown = procedure.arguments.iter().chain(outs);
        let mut unknown = unknown.filter(|name| !known.iter().any(|(it, _)| is_same(it, name)));
        if let Some(name) = unknown.next() {
            let procedure = &procedure.name;
            return Err(refused(format_args!(
                "the procedure `{procedure}` is not there or has no parameter `{name}`"
            )));
        }
        let parameters = known.into_iter().map(|(name, mode)| {
            let mut arguments = procedure.arguments.iter();
            let argument = arguments.position(|it| is_same(it, &name));
            let wants_out = procedure.outs.iter().any(|out| is_same(&out.name, &name));
            let (goes_in, comes_out) = (mode != "OUT", mode != "IN");
            let problem = match (goes_in, argument.is_some(), comes_out, wants_out) {
                (true, false, ..) => "needs an argument",
                (false, true, ..) => "only comes out: it takes no argument",
                (_, _, false, true) => "does not come out",
                _ => {
                    return Ok(Parameter {
                        name,
                        argument,
                        comes_out,
                    });
                }
            };
            let procedure = &procedure.name;
            Err(refused(format_args!(
                "the parameter `{name}` of the procedure `{procedure}` {problem}"
            )))
        });
        let parameters: Vec<Parameter> = parameters.collect::<Result<_, _>>()?;
        let places = vec!["?"; parameters.len()].join(", ");
        let text = format!("{}({places})", call(&procedure.name));
        Ok(Self { text, parameters })
    }

    /// What is bound: arguments, and NULL for what only comes out.
    pub fn bind(&self, statement: &Statement, arguments: &[Value]) -> Result<Vec<Raw>, SqlError> {
        let bound = self.parameters.iter().map(|parameter| {
            let at = parameter.argument;
            let named = at.and_then(|at| statement.names.get(at).zip(arguments.get(at)));
            match named {
                Some((name, argument)) => values::bind(name, argument),
                None => Ok(Raw::NULL),
            }
        });
        bound.collect()
    }

    /// The names of what comes out, in the order of the server.
    pub fn outs(&self) -> Vec<String> {
        let outs = self.parameters.iter().filter(|it| it.comes_out);
        outs.map(|it| it.name.clone()).collect()
    }
}

/// `call` and the quoted name.
pub fn call(name: &str) -> String {
    let parts: Vec<String> = name.split('.').map(quoted).collect();
    format!("call {}", parts.join("."))
}

fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// Names of parameters do not tell capitals apart.
pub fn is_same(one: &str, other: &str) -> bool {
    one.to_lowercase() == other.to_lowercase()
}

fn refused(message: std::fmt::Arguments<'_>) -> SqlError {
    SqlError::new(Class::Statement, message).without_effect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::session::Out;

    fn plan(arguments: &[&str], outs: &[&str]) -> Result<Plan, String> {
        let procedure = Procedure {
            name: "shop.ord`er".to_owned(),
            arguments: arguments.iter().map(|it| (*it).to_owned()).collect(),
            outs: outs
                .iter()
                .map(|name| Out {
                    name: (*name).to_owned(),
                    sql_type: "int".to_owned(),
                })
                .collect(),
        };
        let known = [("a", "IN"), ("B", "OUT"), ("c", "INOUT")];
        let known = known.map(|(name, mode)| (name.to_owned(), mode.to_owned()));
        Plan::new(&procedure, known.to_vec()).map_err(|error| error.message)
    }

    #[test]
    fn names_find_their_places() {
        let plan = plan(&["C", "a"], &["b"]).unwrap();
        assert_eq!(plan.text, "call `shop`.`ord``er`(?, ?, ?)");
        let places: Vec<_> = plan.parameters.iter().map(|it| it.argument).collect();
        assert_eq!(places, [Some(1), None, Some(0)]);
        assert_eq!(plan.outs(), ["B", "c"]);
    }

    #[test]
    fn what_the_procedure_does_not_have_is_told() {
        let cases: [(&[&str], &[&str], &str); 5] = [
            (
                &["a"],
                &[],
                "the parameter `c` of the procedure `shop.ord`er` needs an argument",
            ),
            (
                &["a", "b", "c"],
                &[],
                "only comes out: it takes no argument",
            ),
            (&["a", "c"], &["a"], "does not come out"),
            (
                &["a", "c", "d"],
                &[],
                "is not there or has no parameter `d`",
            ),
            (&["a", "c"], &["e"], "is not there or has no parameter `e`"),
        ];
        for (arguments, outs, expected) in cases {
            let found = plan(arguments, outs).err().unwrap_or_default();
            assert!(found.ends_with(expected), "{found}");
        }
    }
}
