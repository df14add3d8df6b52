//! `${ $env.NAME }` in strings, and `${ $secret.NAME }` under `use:` and where else documents may
//! have secrets: the values are put in when flow files are loaded.
//!
//! Outside steps, where no message is there to be asked, every other `${` is an error; it is never
//! passed on as text. In steps the others are left to whoever compiles expressions.

use component::evaluation::Evaluation;
use component::scope::Scope;
use config::{Entry, EnvLookup, Hole, Node, Report, Secrets, Span, Value};
use expr::Value as Known;
use expr::jq::Limits;

use crate::codes::{ENVIRONMENT, EXPRESSION};

/// The names that flow files may use, with their values.
pub(crate) struct Environment {
    /// Names of `engine.env` in order; without a value when the name is unset, which has been
    /// reported where it is declared.
    names: Vec<(String, Option<String>)>,
}

/// Places where something was put in, or should have been.
#[derive(Default)]
pub(crate) struct Places {
    /// Where that failed: what else is wrong there follows from it.
    pub spoiled: Vec<Span>,
    /// Where a secret was put in, with its value.
    pub secret: Vec<(Span, String)>,
}

impl Environment {
    /// Reads `engine.env`. Its shape is checked with the other settings.
    pub fn read(
        engine: Option<&Node>,
        lookup: &dyn Fn(&str) -> Option<String>,
        report: &mut Report,
    ) -> Self {
        let items = engine
            .and_then(|engine| engine.get("env"))
            .and_then(Node::as_sequence);
        let mut names = Vec::new();
        for item in items.unwrap_or_default() {
            let Some(name) = item.as_str() else { continue };
            if !is_environment_name(name) {
                let shown = name.escape_debug();
                report
                    .error(
                        ENVIRONMENT,
                        item.span,
                        format!("`{shown}` is not an environment name"),
                    )
                    .hint("a name has letters, digits and `_` and does not begin with a digit");
                continue;
            }
            let value = lookup(name);
            if value.is_none() {
                let message = format!("the environment variable {name} is not set");
                report.error(ENVIRONMENT, item.span, message).hint(format!(
                    "set it before the start: {name}=... intertie run ..."
                ));
            }
            names.push((name.to_owned(), value));
        }
        Self { names }
    }

    /// What expressions outside steps may use.
    pub fn evaluation(&self, secrets: &Secrets, limits: Limits) -> Evaluation {
        let mut scope = Scope::default();
        scope.env = self.names().map(str::to_owned).collect();
        scope.secrets = secrets.names().map(str::to_owned).collect();
        Evaluation::new(scope, (self.value(), secret_value(secrets)), limits)
    }

    /// Puts values in for `${ $env.NAME }` in all string values of a document, and for
    /// `${ $secret.NAME }` in those under its `use:`, `engine.auth` and `engine.egress`. Refuses
    /// every other `${` but in steps and where else there are expressions (see
    /// [`crate::Table::evaluated`]) or secrets (see [`crate::Table::secrets`]).
    pub fn expand_document(
        &self,
        document: &mut Node,
        (secrets, evaluated, secret): (&Secrets, &[&str], &[&str]),
        places: &mut Places,
        report: &mut Report,
    ) {
        let Value::Mapping(entries) = &mut document.value else {
            return self.expand(document, None, places, report);
        };
        for entry in entries {
            refuse_hole_in_key(entry, places, report);
            match entry.key.as_str() {
                "steps" | "on_error" | "limits" => {
                    self.expand_steps(&mut entry.value, places, report)
                }
                "tests" | "doc" => {}
                "use" => self.expand(&mut entry.value, Some(secrets), places, report),
                "engine" => self.expand_engine(&mut entry.value, secrets, places, report),
                key if evaluated.contains(&key) => {
                    self.expand_steps(&mut entry.value, places, report);
                }
                key => {
                    let within = evaluated.iter().filter_map(|it| it.split_once('.'));
                    let within = within.filter(|(first, _)| *first == key);
                    let within: Vec<&str> = within.map(|(_, second)| second).collect();
                    let secret = below(secret, key);
                    let secrets = (secrets, secret.as_slice());
                    self.expand_part(&mut entry.value, (&within, secrets), places, report);
                }
            }
        }
    }

    /// The same for the settings of the engine, whose `auth` and `egress` may have secrets.
    fn expand_engine(
        &self,
        node: &mut Node,
        secrets: &Secrets,
        places: &mut Places,
        report: &mut Report,
    ) {
        let Value::Mapping(entries) = &mut node.value else {
            return self.expand(node, None, places, report);
        };
        for entry in entries {
            refuse_hole_in_key(entry, places, report);
            let may_have = matches!(entry.key.as_str(), "auth" | "egress");
            let secrets = may_have.then_some(secrets);
            self.expand(&mut entry.value, secrets, places, report);
        }
    }

    /// The same for a mapping of which the values under some keys have expressions.
    fn expand_part(
        &self,
        node: &mut Node,
        (evaluated, (secrets, secret)): (&[&str], (&Secrets, &[&str])),
        places: &mut Places,
        report: &mut Report,
    ) {
        let Value::Mapping(entries) = &mut node.value else {
            return self.expand(node, None, places, report);
        };
        for entry in entries {
            refuse_hole_in_key(entry, places, report);
            match evaluated.contains(&entry.key.as_str()) {
                true => self.expand_steps(&mut entry.value, places, report),
                false if refuse_condition(entry, places, report) => {}
                false => {
                    let evaluated = below(evaluated, &entry.key);
                    let secret = below(secret, &entry.key);
                    let secrets = (secrets, secret.as_slice());
                    match evaluated.is_empty() {
                        true => self.expand_below(&mut entry.value, secrets, places, report),
                        false => {
                            let parts = (evaluated.as_slice(), secrets);
                            self.expand_part(&mut entry.value, parts, places, report);
                        }
                    }
                }
            }
        }
    }

    /// The same where secrets may stand at these paths.
    fn expand_below(
        &self,
        node: &mut Node,
        (secrets, paths): (&Secrets, &[&str]),
        places: &mut Places,
        report: &mut Report,
    ) {
        if paths.contains(&"") {
            return self.expand(node, Some(secrets), places, report);
        }
        match &mut node.value {
            Value::Mapping(entries) if !paths.is_empty() => {
                for entry in entries {
                    refuse_hole_in_key(entry, places, report);
                    let paths = below(paths, &entry.key);
                    self.expand_below(&mut entry.value, (secrets, &paths), places, report);
                }
            }
            _ => self.expand(node, None, places, report),
        }
    }

    /// Puts values in for the texts of steps whose every `${` is a `${ $env.NAME }`.
    fn expand_steps(&self, node: &mut Node, places: &mut Places, report: &mut Report) {
        match &mut node.value {
            Value::String(text) if text.contains("${") => {
                let holes = holes(text).unwrap_or_default();
                let mut names = holes.iter().filter_map(|hole| match hole {
                    Hole::Env(name) => Some(*name),
                    Hole::Secret(_) => None,
                });
                if holes.is_empty() || names.clone().count() < holes.len() {
                    return;
                }
                // Put into a text it would be compiled as an expression.
                let is_code = |name: &str| match self.look_up(name) {
                    EnvLookup::Value(value) => value.contains("${"),
                    EnvLookup::Undeclared | EnvLookup::Unset => false,
                };
                if let Some(name) = names.find(|name| is_code(name)) {
                    let message = format!("the value of {name} has a `${{` in it");
                    report.error(ENVIRONMENT, node.span, message);
                    places.spoiled.push(node.span);
                } else if !self.expand_text(node, None, places, report) {
                    places.spoiled.push(node.span);
                }
            }
            Value::Sequence(items) => {
                items
                    .iter_mut()
                    .for_each(|item| self.expand_steps(item, places, report));
            }
            Value::Mapping(entries) => {
                for entry in entries {
                    refuse_hole_in_key(entry, places, report);
                    self.expand_steps(&mut entry.value, places, report);
                }
            }
            _ => {}
        }
    }

    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|(name, _)| name.as_str())
    }

    /// The names and values as expressions see them.
    pub fn value(&self) -> Known {
        let members = self.names.iter();
        expr::value::object(members.map(|(name, value)| {
            let value = value.as_deref().unwrap_or_default();
            (name.clone(), expr::value::text(value))
        }))
    }

    /// The same for one value of a document, with secrets where they may be used.
    pub fn expand(
        &self,
        node: &mut Node,
        secrets: Option<&Secrets>,
        places: &mut Places,
        report: &mut Report,
    ) {
        match &mut node.value {
            Value::String(text) if text.contains("${") => {
                if !self.expand_text(node, secrets, places, report) {
                    places.spoiled.push(node.span);
                }
            }
            Value::Sequence(items) => {
                items
                    .iter_mut()
                    .for_each(|item| self.expand(item, secrets, places, report));
            }
            Value::Mapping(entries) => {
                for entry in entries {
                    refuse_hole_in_key(entry, places, report);
                    if !refuse_condition(entry, places, report) {
                        self.expand(&mut entry.value, secrets, places, report);
                    }
                }
            }
            Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// False when the text has a `${` that nothing could be put in for.
    fn expand_text(
        &self,
        node: &mut Node,
        secrets: Option<&Secrets>,
        places: &mut Places,
        report: &mut Report,
    ) -> bool {
        let holes = node.as_str().and_then(holes).unwrap_or_default();
        let is_out_of_place = |hole: &Hole| secrets.is_none() && matches!(hole, Hole::Secret(_));
        if holes.is_empty() || holes.iter().any(is_out_of_place) {
            let (message, hint) = refusal(&holes);
            report.error(EXPRESSION, node.span, message).hint(hint);
            return false;
        }
        let mut sound = true;
        for hole in holes {
            let value = match hole {
                Hole::Env(name) => match self.look_up(name) {
                    EnvLookup::Value(value) => Some(value),
                    EnvLookup::Undeclared | EnvLookup::Unset => None,
                },
                Hole::Secret(name) => {
                    let value = secrets.and_then(|secrets| secrets.get(name));
                    let secret = value.map(|value| (node.span, value.to_owned()));
                    places.secret.extend(secret);
                    value.map(str::to_owned)
                }
            };
            sound &= value.is_some();
        }
        config::expand_names(node, &|name| self.look_up(name), secrets, report);
        sound
    }

    fn look_up(&self, name: &str) -> EnvLookup {
        match self.names.iter().find(|(known, _)| known == name) {
            None => EnvLookup::Undeclared,
            Some((_, None)) => EnvLookup::Unset,
            Some((_, Some(value))) => EnvLookup::Value(value.clone()),
        }
    }
}

/// What is left of paths behind a key; `*` stands for any.
fn below<'a>(paths: &[&'a str], key: &str) -> Vec<&'a str> {
    let left = paths.iter().filter_map(|path| {
        let (first, left) = path.split_once('.').unwrap_or((path, ""));
        (first == key || first == "*").then_some(left)
    });
    left.collect()
}

/// Secrets as expressions see them.
pub(crate) fn secret_value(secrets: &Secrets) -> Known {
    let members = secrets.names().filter_map(|name| {
        let value = secrets.get(name)?;
        Some((name.to_owned(), expr::value::text(value)))
    });
    expr::value::object(members)
}

/// What is wrong with a text of which not every `${` can be put in.
fn refusal(holes: &[Hole<'_>]) -> (&'static str, &'static str) {
    match holes {
        [] => (
            "no expression can stand here",
            "the only `${ }` that can are `${ $env.NAME }` and, under `use:`, \
             `engine.auth` and `engine.egress`, `${ $secret.NAME }`",
        ),
        _ => (
            "a secret can only be used under `use:`, `engine.auth` and `engine.egress` and in \
             steps",
            "give the system a name under `use:` and put the secret in there",
        ),
    }
}

fn refuse_hole_in_key(entry: &Entry, places: &mut Places, report: &mut Report) {
    if entry.key.contains("${") {
        report
            .error(
                EXPRESSION,
                entry.key_span,
                "`${ }` is not available in keys",
            )
            .hint("write the key as plain text");
        places.spoiled.push(entry.key_span);
    }
}

/// Refuses a `${ }` around the condition of a `require`, which is an expression by itself.
fn refuse_condition(entry: &Entry, places: &mut Places, report: &mut Report) -> bool {
    let text = entry.value.as_str().unwrap_or_default();
    if entry.key != "require" || !text.contains("${") || holes(text).is_some() {
        return false;
    }
    let inner = text.trim().strip_prefix("${");
    let inner = inner.and_then(|it| it.strip_suffix('}')).map(str::trim);
    let hint = match inner.filter(|it| !it.contains("${")) {
        Some(inner) => format!("write `require: '{}'`", inner.escape_debug()),
        None => "write it without `${ }`, such as `require: '$auth.claims.admin'`".to_owned(),
    };
    let message = "`require` is an expression by itself: there is no `${ }` around it";
    report
        .error(EXPRESSION, entry.value.span, message)
        .hint(hint);
    places.spoiled.push(entry.value.span);
    true
}

/// Whether a text can be the name of an environment variable.
pub(crate) fn is_environment_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// What stands in the `${ }` of a text; `None` when one is something else.
fn holes(text: &str) -> Option<Vec<Hole<'_>>> {
    let mut holes = Vec::new();
    let mut rest = text;
    while let Some((_, behind)) = rest.split_once("${") {
        let (inside, after) = behind.split_once('}')?;
        let hole = Hole::read(inside)?;
        if matches!(hole, Hole::Env(name) if !is_environment_name(name)) {
            return None;
        }
        holes.push(hole);
        rest = after;
    }
    Some(holes)
}
