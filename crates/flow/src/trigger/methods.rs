//! The methods of a trigger: `GET`, `GET,POST`, `any`.

use component::text::parse_method;
use component::trigger::Methods;
use message::Method;

use crate::codes::BAD_METHOD;
use crate::problem::Problem;

/// Reads the text form: `any`, or methods with commas between them.
pub(super) fn parse(text: &str) -> Result<Methods, Vec<Problem>> {
    if text == "any" {
        return Ok(Methods::Any);
    }
    collect(text.split(',').map(str::trim))
}

/// Reads the methods of a list, each once.
pub(super) fn collect<'a>(items: impl Iterator<Item = &'a str>) -> Result<Methods, Vec<Problem>> {
    let (mut methods, mut problems) = (Vec::new(), Vec::new());
    for item in items {
        match read(item) {
            Ok(method) if methods.contains(&method) => {
                let message = format!("the method {method} stands twice");
                problems.push(Problem::new(BAD_METHOD, message));
            }
            Ok(method) => methods.push(method),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() {
        Ok(Methods::Only(methods))
    } else {
        Err(problems)
    }
}

fn read(item: &str) -> Result<Method, Problem> {
    if item.eq_ignore_ascii_case("any") || item == "*" {
        let problem = Problem::new(BAD_METHOD, format!("`{item}` is not a method"));
        return Err(problem.with_hint("every method is `any`, in lower case and alone"));
    }
    parse_method(item).map_err(|error| Problem::of_text(BAD_METHOD, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_keep_their_order() {
        assert_eq!(parse("any").unwrap(), Methods::Any);
        assert_eq!(parse("GET").unwrap(), Methods::Only(vec![Method::Get]));
        let both = Methods::Only(vec![Method::Post, Method::Get]);
        assert_eq!(parse("POST,GET").unwrap(), both);
        assert_eq!(collect(["POST", "GET"].into_iter()).unwrap(), both);
    }

    #[test]
    fn every_bad_method_of_a_list_is_told() {
        let problems = parse("get,GET,ANY,G(T,GET,CONNECT,,*").unwrap_err();
        let words: Vec<&str> = problems
            .iter()
            .map(|problem| problem.message.as_str())
            .collect();
        assert_eq!(
            words,
            [
                "`get` is not a method",
                "`ANY` is not a method",
                "`G(T` is not a method",
                "the method GET stands twice",
                "the method CONNECT opens tunnels and is refused",
                "a method is missing",
                "`*` is not a method",
            ]
        );
    }
}
