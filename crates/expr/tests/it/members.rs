//! What an expression uses of a variable.

use expr::Expression;
use expr::jq::Scope;

#[test]
fn the_members_of_a_variable_that_an_expression_uses_are_known() {
    for (code, expected) in [
        ("$a.b.c == .x", "b.c"),
        ("$a[\"b\"].c? and ($a.d[0] | length > $a.b.c)", "b.c d"),
        ("$a.b[.name].c", "b"),
        ("$a.\"b\\(.x)\"", ""),
        ("$a | .b", ""),
        ("{$a}", ""),
        ("1 as $x | $x", "none"),
        ("{a: 1} as $a | $a.b", "none"),
        ("reduce .[] as $i ($a.b; . + $i)", "b"),
        ("def f($a): $a.c; f($a.b)", "b"),
    ] {
        let expression = Expression::compile(code, &OneName).unwrap();
        let members = expression.members_of(7).map(|it| it.join("."));
        let members: Vec<String> = members.collect();
        let shown = match members.is_empty() {
            true => "none".to_owned(),
            false => members.join(" "),
        };
        assert_eq!(shown, expected, "{code}");
        assert_eq!(expression.members_of(8).count(), 0);
    }
}

/// A scope with the variable `$a`.
struct OneName;

impl Scope for OneName {
    fn slot(&self, name: &str) -> Option<usize> {
        (name == "a").then_some(7)
    }

    fn names(&self) -> Vec<String> {
        vec!["a".to_owned()]
    }
}
