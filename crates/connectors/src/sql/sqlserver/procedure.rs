//! Calls of stored procedures: a batch that hands arguments over by name and selects what comes
//! out.

use crate::sql::session::Procedure;

/// What the columns of the last result set begin with, in which parameters come out. No procedure
/// has such columns but on purpose.
pub const OUT_MARK: &str = "intertie out: ";

/// The most characters of a parameter's name (Transact-SQL: regular identifiers).
const NAME_MAX: usize = 100;

/// The text that calls a procedure, and its arguments in their order.
///
/// ```text
/// declare @intertie_out1 decimal(12,2) = @P2;
/// exec [dbo].[price] @item = @P1, @sum = @intertie_out1 output;
/// select @intertie_out1 as [intertie out: sum]
/// ```
pub fn call(procedure: &Procedure) -> Result<(String, Vec<String>), String> {
    let (mut before, mut handed, mut after) = (String::new(), Vec::new(), Vec::new());
    let names = procedure.arguments.iter();
    for name in names.chain(procedure.outs.iter().map(|out| &out.name)) {
        check_name(name)?;
    }
    for (index, argument) in procedure.arguments.iter().enumerate() {
        match procedure.outs.iter().position(|out| out.name == *argument) {
            Some(out) => handed.push(format!("@{argument} = {} output", variable(out))),
            None => handed.push(format!("@{argument} = @P{}", index + 1)),
        }
    }
    for (index, out) in procedure.outs.iter().enumerate() {
        let variable = variable(index);
        let mut arguments = procedure.arguments.iter();
        let given = match arguments.position(|argument| *argument == out.name) {
            Some(at) => format!(" = @P{}", at + 1),
            None => {
                handed.push(format!("@{} = {variable} output", out.name));
                String::new()
            }
        };
        before += &format!("declare {variable} {}{given};\n", out.sql_type);
        let column = quoted(&format!("{OUT_MARK}{}", out.name));
        after.push(format!("{variable} as {column}"));
    }
    let name: Vec<String> = procedure.name.split('.').map(quoted).collect();
    let mut text = format!("{before}exec {} {}", name.join("."), handed.join(", "));
    if !after.is_empty() {
        text += &format!(";\nselect {}", after.join(", "));
    }
    Ok((text.trim_end().to_owned(), procedure.arguments.clone()))
}

fn variable(out: usize) -> String {
    format!("@intertie_out{}", out + 1)
}

fn check_name(name: &str) -> Result<(), String> {
    let is_part = |it: char| it.is_ascii_alphanumeric() || "_#$@".contains(it);
    let begins = name.starts_with(|it: char| it.is_ascii_alphabetic() || it == '_');
    match begins && name.len() <= NAME_MAX && name.chars().all(is_part) {
        true => Ok(()),
        false => {
            let name = name.escape_debug();
            Err(format!(
                "`{name}` is no name of a parameter: write it without `@`"
            ))
        }
    }
}

fn quoted(name: &str) -> String {
    format!("[{}]", name.replace(']', "]]"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::session::Out;

    fn text(name: &str, arguments: &[&str], outs: &[(&str, &str)]) -> Result<String, String> {
        let procedure = Procedure {
            name: name.to_owned(),
            arguments: arguments.iter().map(|it| (*it).to_owned()).collect(),
            outs: outs
                .iter()
                .map(|(name, sql_type)| Out {
                    name: (*name).to_owned(),
                    sql_type: (*sql_type).to_owned(),
                })
                .collect(),
        };
        call(&procedure).map(|(text, _)| text)
    }

    #[test]
    fn arguments_go_by_name_and_outs_come_as_a_row() {
        assert_eq!(text("dbo.none", &[], &[]).unwrap(), "exec [dbo].[none]");
        assert_eq!(
            text("a", &["x", "y"], &[]).unwrap(),
            "exec [a] @x = @P1, @y = @P2"
        );
        assert_eq!(
            text("a]b", &["x", "y"], &[("y", "int"), ("z", "decimal(12,2)")]).unwrap(),
            "declare @intertie_out1 int = @P2;\n\
             declare @intertie_out2 decimal(12,2);\n\
             exec [a]]b] @x = @P1, @y = @intertie_out1 output, @z = @intertie_out2 output;\n\
             select @intertie_out1 as [intertie out: y], @intertie_out2 as [intertie out: z]"
        );
        for odd in ["", "@a", "a b", "a = 1; drop table t --", "ä"] {
            assert!(text("a", &[odd], &[]).is_err(), "{odd}");
        }
    }
}
