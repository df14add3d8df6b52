//! One screen of a menu.

use std::time::Duration;

use config::{Entry, Node, Spanned, Value};
use expr::jq::{Expression, Limits, Variables};

use super::{Reading, number};
use crate::codes::{BAD_LANGUAGE, BAD_MENU, DEAD_END};
use crate::input::Rule;
use crate::plan::{Choice, Each, Input, Once, Screen, Target, Then};

/// What it costs at most to try a pattern.
const LIMITS: Limits = Limits {
    steps: 100_000,
    memory: 1 << 20,
    depth: 16,
    until: None,
    at_once: false,
};

/// No names: a pattern has none.
struct NoNames;

impl Variables for NoNames {
    fn get(&self, _: usize) -> expr::Value {
        expr::Value::Null
    }

    fn now(&self) -> f64 {
        0.0
    }
}

/// What follows a screen, as it is written.
struct Written<'n> {
    options: Option<&'n Node>,
    input: Option<&'n Entry>,
    go: Option<&'n Entry>,
    ends: bool,
}

impl Reading<'_, '_> {
    pub fn read_screen(&mut self, entry: &Entry) -> Option<Screen> {
        let node = &entry.value;
        let before = self.context.problems();
        let label = format!("screen {}", entry.key);
        let place = self.context.place(&label, entry.key_span, false);
        let work = node.get("do").and_then(|items| {
            let block = self.context.branch(&entry.key, items, false)?;
            if block.ends_flow() || block.streams() {
                let message = "a screen goes on behind its steps: none of them replies";
                let diagnostic = self.context.report.error(BAD_MENU, items.span, message);
                diagnostic.hint("what is shown stands under `text`");
            }
            Some(block)
        });
        let once = self.read_once(node);
        let written = Written {
            options: node.get("options"),
            input: node.entry("input"),
            go: node.entry("go"),
            ends: super::flag(node.get("end")),
        };
        let text = node.get("text");
        let is_form = self.check_form(entry, text.is_some(), &written);
        let then = self.read_then(&entry.key, &written);
        let text = match text {
            Some(text) => Some(self.templates(text)?),
            None => None,
        };
        let is_sound = is_form && self.context.problems() == before;
        let screen = Screen {
            name: entry.key.as_str().into(),
            place,
            work,
            once,
            text,
            then: then?,
        };
        is_sound.then_some(screen)
    }

    /// How the steps of a screen happen once.
    fn read_once(&mut self, screen: &Node) -> Option<Once> {
        let entry = screen.entry("once")?;
        let node = &entry.value;
        if screen.get("do").is_none() {
            let message = "`once` has no effect without `do`";
            let diagnostic = self.context.report.error(BAD_MENU, entry.key_span, message);
            diagnostic.hint("give the screen the steps that happen once");
        }
        let seconds = Duration::from_secs;
        let wait = self.time(node.get("wait"), seconds(7), seconds(1)..=seconds(60));
        let timeout = node.get("timeout");
        let timeout = self.time(timeout, seconds(60), seconds(1)..=seconds(3600));
        let unsure = self.screen(node.get("unsure")?)?;
        Some(Once {
            wait,
            timeout,
            unsure,
        })
    }

    /// A screen is one of four: options, an input with what follows, what follows alone, or an end.
    fn check_form(&mut self, entry: &Entry, has_text: bool, written: &Written<'_>) -> bool {
        let forms = (
            written.options.is_some(),
            written.input.is_some(),
            written.go.is_some(),
            written.ends,
        );
        let report = &mut *self.context.report;
        let mut refuse = |code, message: String, hint: &str| {
            report.error(code, entry.key_span, message).hint(hint);
            false
        };
        let name = &entry.key;
        match forms {
            (false, false, false, false) => refuse(
                DEAD_END,
                format!("screen `{name}` neither goes on nor ends"),
                "give it `options`, `input` with `go`, `go`, or `end: true`",
            ),
            (false, true, false, false) => refuse(
                DEAD_END,
                format!("nothing follows the input of screen `{name}`"),
                "say `go`",
            ),
            (true, false, false, false)
            | (false, true, true, false)
            | (false, false, false, true)
                if !has_text =>
            {
                refuse(
                    BAD_MENU,
                    format!("screen `{name}` shows nothing"),
                    "give it a `text`",
                )
            }
            (false, false, true, false) if has_text => refuse(
                BAD_MENU,
                format!("screen `{name}` goes on at once: nobody would see its text"),
                "leave `text` or `go` out, or offer `options`",
            ),
            (true, false, false, false)
            | (false, true, true, false)
            | (false, false, true, false)
            | (false, false, false, true) => true,
            _ => refuse(
                BAD_MENU,
                format!("screen `{name}` has several ways to go on"),
                "it has one of `options`, `input` with `go`, `go`, and `end`",
            ),
        }
    }

    fn read_then(&mut self, name: &str, written: &Written<'_>) -> Option<Then> {
        if let Some(options) = written.options {
            let nodes = options.as_sequence()?;
            let read: Vec<_> = nodes.iter().map(|it| self.read_choice(name, it)).collect();
            return Some(Then::Options(read.into_iter().collect::<Option<_>>()?));
        }
        let targets = match written.go {
            Some(go) => Some(self.read_targets(&go.value)?),
            None => None,
        };
        if let Some(input) = written.input {
            let input = self.read_input(&input.value)?;
            return Some(Then::Input(Box::new(input), targets?));
        }
        Some(match targets {
            Some(targets) => Then::Go(targets),
            None => Then::End,
        })
    }

    fn read_choice(&mut self, screen: &str, node: &Node) -> Option<Choice> {
        let go = node.get("go").and_then(Node::as_str).unwrap_or_default();
        let label = format!("option of {screen} to {go}");
        let place = self.context.place(&label, node.span, false);
        let each = match (node.entry("each"), node.entry("as")) {
            (Some(each), Some(name)) => {
                let items = self.expression(&each.value)?;
                let slot = self.slot(&name.value)?;
                Some(Each { items, slot })
            }
            (None, None) => None,
            (Some(each), None) => {
                let message = "`each` needs a name for the item";
                let diagnostic = self.context.report.error(BAD_MENU, each.key_span, message);
                diagnostic.hint("say `as: NAME`");
                return None;
            }
            (None, Some(name)) => {
                let message = "`as` has no effect without `each`";
                self.context.report.error(BAD_MENU, name.key_span, message);
                return None;
            }
        };
        if let (Some(_), Some(key)) = (&each, node.entry("key")) {
            let message = "several options cannot have one key";
            let diagnostic = self.context.report.error(BAD_MENU, key.key_span, message);
            diagnostic.hint("leave `key` out: they are numbered");
        }
        let language = match node.get("language") {
            Some(language) => Some(self.language(language)?),
            None => None,
        };
        let condition = match node.get("if") {
            Some(condition) => Some(self.expression(condition)?),
            None => None,
        };
        let (text, go) = (
            self.templates(node.get("text")?),
            self.screen(node.get("go")?),
        );
        Some(Choice {
            key: node.get("key").and_then(Node::as_str).map(str::to_owned),
            text: text?,
            place,
            go: go?,
            condition,
            language,
            each,
        })
    }

    fn language(&mut self, node: &Node) -> Option<usize> {
        let name = node.as_str()?;
        let mut names = self.languages.names.iter();
        let found = names.position(|it| **it == *name);
        if found.is_none() {
            let message = format!("the menu has no language `{}`", name.escape_debug());
            self.context.report.error(BAD_LANGUAGE, node.span, message);
        }
        found
    }

    fn expression(&mut self, node: &Node) -> Option<Expression> {
        let text = Spanned {
            value: node.as_str()?.to_owned(),
            span: node.span,
        };
        self.context.expression(&text)
    }

    fn read_targets(&mut self, node: &Node) -> Option<Vec<Target>> {
        let Some(branches) = node.as_sequence() else {
            let screen = self.screen(node)?;
            return Some(vec![Target {
                condition: None,
                screen,
            }]);
        };
        let mut read = Vec::new();
        for (at, branch) in branches.iter().enumerate() {
            let condition = branch.get("if");
            let is_last = at + 1 == branches.len();
            if condition.is_some() == is_last {
                let (message, hint) = match is_last {
                    true => (
                        "where no condition holds nothing follows",
                        "end with `- go: SCREEN`",
                    ),
                    false => ("what stands behind this is never reached", "say `if`"),
                };
                let diagnostic = self.context.report.error(DEAD_END, branch.span, message);
                diagnostic.hint(hint);
            }
            let condition = match condition {
                Some(condition) => Some(self.expression(condition)?),
                None => None,
            };
            let screen = self.screen(branch.get("go")?)?;
            read.push(Target { condition, screen });
        }
        Some(read)
    }

    fn read_input(&mut self, node: &Node) -> Option<Input> {
        let rule = self.read_rule(node)?;
        let slot = self.slot(node.get("as")?)?;
        if let (Some(after), None) = (node.entry("after_tries"), node.get("tries")) {
            let message = "`after_tries` has no effect without `tries`";
            self.context.report.error(BAD_MENU, after.key_span, message);
        }
        let pattern = match node.get("text").and_then(|it| it.get("pattern")) {
            Some(pattern) => Some(self.read_pattern(pattern)?),
            None => None,
        };
        let condition = match node.get("where") {
            Some(condition) => Some(self.expression(condition)?),
            None => None,
        };
        let invalid = match node.get("invalid") {
            Some(invalid) => Some(self.message(invalid)?),
            None => None,
        };
        let after_tries = match node.get("after_tries") {
            Some(screen) => Some(self.screen(screen)?),
            None => None,
        };
        Some(Input {
            slot,
            rule,
            pattern,
            condition,
            invalid,
            tries: node.get("tries").and_then(number).map(|it| it as u32),
            after_tries,
        })
    }

    /// Whether a text is of this form as a whole, by the regular expressions of jq.
    fn read_pattern(&mut self, node: &Node) -> Option<Expression> {
        let quoted = serde_json::Value::from(format!("^(?:{})$", node.as_str()?));
        let expression = Expression::compile(&format!("test({quoted})"), &*self.context.scope);
        // A pattern that is none is noticed when it is used.
        let works = |it: &Expression| {
            it.evaluate(&expr::value::text(""), &NoNames, &LIMITS)
                .is_ok()
        };
        let expression = expression.ok().filter(works);
        if expression.is_none() {
            let message = "this is not a regular expression";
            let diagnostic = self.context.report.error(BAD_MENU, node.span, message);
            diagnostic.hint("write one such as `[A-Z]{2}[0-9]{6}`; it is for the whole text");
        }
        expression
    }

    fn read_rule(&mut self, node: &Node) -> Option<Rule> {
        let kinds = ["text", "number", "decimal", "pin"];
        let mut given = kinds.iter().filter_map(|kind| node.entry(kind));
        let (first, second) = (given.next(), given.next());
        let (Some(entry), None) = (first, second) else {
            let message = "an input is a `text`, a `number`, a `decimal` or a `pin`";
            let span = second.map_or(node.span, |it| it.key_span);
            let diagnostic = self.context.report.error(BAD_MENU, span, message);
            diagnostic.hint("write one of them, such as `number: { min: 1, max: 500 }`");
            return None;
        };
        let whole =
            |key: &str, default: i64| entry.value.get(key).and_then(number).unwrap_or(default);
        let real = |key: &str, default: f64| match entry.value.get(key).map(|it| &it.value) {
            Some(Value::Number(number)) => number.as_f64(),
            _ => default,
        };
        let (rule, is_empty) = match entry.key.as_str() {
            "text" => {
                let (min, max) = (whole("min", 1) as usize, whole("max", 160) as usize);
                (Rule::Text { min, max }, min > max)
            }
            "number" => {
                let (min, max) = (whole("min", 0), whole("max", 999_999_999_999_999));
                (Rule::Number { min, max }, min > max || max < 0)
            }
            "decimal" => {
                let (min, max) = (real("min", 0.0), real("max", 1e15));
                let places = whole("places", 2) as usize;
                (Rule::Decimal { min, max, places }, min > max || max < 0.0)
            }
            _ => {
                let digits = whole("digits", 4) as usize;
                (Rule::Pin { digits }, false)
            }
        };
        if is_empty {
            let message = "nothing that can be typed lies between `min` and `max`";
            self.context
                .report
                .error(BAD_MENU, entry.value.span, message);
        }
        Some(rule)
    }
}
