//! Calls of stored procedures: a batch that hands arguments over by name and selects what comes out.

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
    for (index, out) in procedure.outs.iter().enumerate() {
        let variable = format!("@intertie_out{}", index + 1);
        let mut arguments = procedure.arguments.iter();
        let given = arguments.position(|argument| *argument == out.name);
        let given = given
            .map(|at| format!(" = @P{}", at + 1))
            .unwrap_or_default();
        before += &format!("declare {variable} {}{given};\n", out.sql_type);
        handed.push(format!("@{} = {variable} output", out.name));
        after.push(format!(
            "{variable} as {}",
            quoted(&format!("{OUT_MARK}{}", out.name))
        ));
    }
    for (index, argument) in procedure.arguments.iter().enumerate() {
        if !procedure.outs.iter().any(|out| out.name == *argument) {
            handed.push(format!("@{argument} = @P{}", index + 1));
        }
    }
    let name: Vec<String> = procedure.name.split('.').map(quoted).collect();
    let mut text = format!("{before}exec {} {}", name.join("."), handed.join(", "));
    if !after.is_empty() {
        text += &format!(";\nselect {}", after.join(", "));
    }
    Ok((text.trim_end().to_owned(), procedure.arguments.clone()))
}

fn check_name(name: &str) -> Result<(), String> {
    let is_part = |it: char| it.is_ascii_alphanumeric() || "_#$@".contains(it);
    match !name.is_empty() && name.len() <= NAME_MAX && name.chars().all(is_part) {
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
             exec [a]]b] @y = @intertie_out1 output, @z = @intertie_out2 output, @x = @P1;\n\
             select @intertie_out1 as [intertie out: y], @intertie_out2 as [intertie out: z]"
        );
        for odd in ["", "@a", "a b", "a = 1; drop table t --", "ä"] {
            assert!(text("a", &[odd], &[]).is_err(), "{odd}");
        }
    }
}
