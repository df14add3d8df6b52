//! Which names the expressions of a flow may use, and in which slot of an exchange each one's value
//! lies. Filled while a flow is built, in the order of its steps; not there when it runs.

use std::cell::Cell;

/// The names that every flow has, in the order of their slots.
pub const BUILT_IN: [&str; 11] = [
    "in", "headers", "path", "query", "method", "secret", "env", "error", "reply", "flow", "auth",
];

/// The slot of `$in`: the original message.
pub const IN: usize = 0;
/// The slot of `$headers`: the original message's header fields.
pub const HEADERS: usize = 1;
/// The slot of `$path`: what the parts of the trigger's path matched.
pub const PATH: usize = 2;
/// The slot of `$query`: the parameters of the query.
pub const QUERY: usize = 3;
/// The slot of `$method`: the request's method.
pub const METHOD: usize = 4;
/// The slot of `$secret`.
pub const SECRET: usize = 5;
/// The slot of `$env`.
pub const ENV: usize = 6;
/// The slot of `$error`: the failure that is being handled.
pub const ERROR: usize = 7;
/// The slot of `$reply`: status and header fields of the last reply of another system.
pub const REPLY: usize = 8;
/// The slot of `$flow`: the flow's name.
pub const FLOW: usize = 9;
/// The slot of `$auth`: who calls.
pub const AUTH: usize = 10;

/// Whether a variable can have this name.
pub fn is_variable(text: &str) -> bool {
    text.len() <= 100
        && text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Which names may be used where a step stands.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Every name there has been, by slot.
    names: Vec<String>,
    /// The slots whose names may be used here.
    visible: Vec<usize>,
    /// Whether a failure is being handled here, so that there is an `$error`.
    handles_error: bool,
    /// Whether something uses `$in`, so that the original must be kept.
    uses_original: Cell<bool>,
    /// The names of secrets.
    pub secrets: Vec<String>,
    /// The declared names of the environment.
    pub env: Vec<String>,
}

impl Default for Scope {
    fn default() -> Self {
        Self {
            names: BUILT_IN.map(str::to_owned).to_vec(),
            visible: (0..BUILT_IN.len()).collect(),
            handles_error: false,
            uses_original: Cell::new(false),
            secrets: Vec::new(),
            env: Vec::new(),
        }
    }
}

impl Scope {
    /// Makes a name usable from here on and says where its value goes. A name that is there already
    /// keeps its place. `None` for a name that every flow has.
    pub fn declare(&mut self, name: &str) -> Option<usize> {
        if BUILT_IN.contains(&name) {
            return None;
        }
        let found = self.names.iter().position(|known| known == name);
        let slot = found.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        });
        if !self.visible.contains(&slot) {
            self.visible.push(slot);
        }
        Some(slot)
    }

    /// A place to go back to with [`Scope::leave`].
    pub fn enter(&self) -> usize {
        self.visible.len()
    }

    /// Hides the names that have become usable since [`Scope::enter`].
    pub fn leave(&mut self, mark: usize) {
        self.visible.truncate(mark);
    }

    /// Says whether a failure is being handled from here on, and what was before.
    pub fn handle_error(&mut self, handles: bool) -> bool {
        std::mem::replace(&mut self.handles_error, handles)
    }

    /// Whether a failure is being handled here.
    pub fn handles_error(&self) -> bool {
        self.handles_error
    }

    /// The same with every name usable that there has been, and `$error`: for tests, which look at
    /// a flow from its end.
    pub fn with_all_names(&self) -> Self {
        Self {
            visible: (0..self.names.len()).collect(),
            handles_error: true,
            ..self.clone()
        }
    }

    /// The names that there have been beside those of every flow, with their slots.
    pub fn declared(&self) -> impl Iterator<Item = (&str, usize)> {
        let names = self.names.iter().enumerate().skip(BUILT_IN.len());
        names.map(|(slot, name)| (name.as_str(), slot))
    }

    /// How many slots an exchange needs.
    pub fn slots(&self) -> usize {
        self.names.len()
    }

    /// The names that `$secret` or `$env` may be asked for.
    pub(crate) fn members(&self, slot: usize) -> &[String] {
        match slot {
            SECRET => &self.secrets,
            ENV => &self.env,
            _ => &[],
        }
    }

    /// Has the original message kept, for a step that needs it whatever its expressions use.
    pub fn keep_original(&self) {
        self.uses_original.set(true);
    }

    /// Whether something uses `$in`.
    pub fn uses_original(&self) -> bool {
        self.uses_original.get()
    }
}

impl expr::jq::Scope for Scope {
    fn slot(&self, name: &str) -> Option<usize> {
        let slot = self.names.iter().position(|known| known == name)?;
        let is_here = self.visible.contains(&slot) && (slot != ERROR || self.handles_error);
        is_here.then_some(slot)
    }

    fn names(&self) -> Vec<String> {
        let usable = self
            .visible
            .iter()
            .filter(|&&slot| slot != ERROR || self.handles_error);
        usable
            .filter_map(|&slot| self.names.get(slot).cloned())
            .collect()
    }

    fn note_use(&self, slot: usize) {
        if slot == IN {
            self.keep_original();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expr::jq::Scope as _;

    #[test]
    fn a_name_is_usable_from_where_it_is_declared_until_its_block_ends() {
        let mut scope = Scope::default();
        assert_eq!(scope.slot("got"), None);
        let mark = scope.enter();
        let slot = scope.declare("got");
        assert!(slot.is_some() && scope.slot("got") == slot);
        scope.leave(mark);
        assert_eq!(scope.slot("got"), None);
        assert_eq!(scope.declare("got"), slot);
        assert_eq!(scope.declare("headers"), None);
    }

    #[test]
    fn only_handlers_have_an_error() {
        let mut scope = Scope::default();
        assert_eq!(scope.slot("error"), None);
        assert!(!scope.handle_error(true));
        assert_eq!(scope.slot("error"), Some(ERROR));
    }

    /// Each message of a flow that uses `$in` is copied.
    #[test]
    fn only_expressions_that_use_the_original_have_it_kept() {
        let scope = Scope::default();
        let compile = |code| expr::Expression::compile(code, &scope).unwrap();
        compile("{ a: .a, b: $headers.b }");
        assert!(!scope.uses_original());
        compile("$in.body");
        assert!(scope.uses_original());
    }
}
