//! The codes that are dialled, such as `*123#` or `*123*{amount}#`, and the screens that they show.

use crate::plan::ScreenId;

/// The most characters of a code that is dialled.
const DIALLED_MAX: usize = 182;

/// A part of a code between its `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    /// These digits.
    Literal(String),
    /// Any digits, which become the variable of this name.
    Parameter(String),
}

/// A code with its places for variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern(pub Vec<Segment>);

impl Pattern {
    /// Reads a code.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let inner = text.strip_prefix('*').and_then(|it| it.strip_suffix('#'));
        let Some(inner) = inner else {
            return Err("a code begins with `*` and ends with `#`");
        };
        let mut segments = Vec::new();
        for part in inner.split('*') {
            let name = part.strip_prefix('{').and_then(|it| it.strip_suffix('}'));
            let segment = match name {
                Some(name) if component::scope::is_variable(name) => {
                    Segment::Parameter(name.to_owned())
                }
                Some(_) => return Err("this is not a name for a variable"),
                None if is_digits(part) => Segment::Literal(part.to_owned()),
                None => return Err("between the `*` stand digits, or a name such as `{amount}`"),
            };
            if segments.contains(&segment) && matches!(segment, Segment::Parameter(_)) {
                return Err("a name stands in a code once");
            }
            segments.push(segment);
        }
        match segments.first() {
            Some(Segment::Literal(_)) => Ok(Self(segments)),
            _ => Err("a code begins with digits"),
        }
    }

    /// The names of its variables.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|segment| match segment {
            Segment::Parameter(name) => Some(name.as_str()),
            Segment::Literal(_) => None,
        })
    }

    /// Whether both take the same codes.
    pub fn is_like(&self, other: &Self) -> bool {
        let is_same = |(one, two): (&Segment, &Segment)| match (one, two) {
            (Segment::Parameter(_), Segment::Parameter(_)) => true,
            (one, two) => one == two,
        };
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(is_same)
    }

    /// The values of its variables in what was dialled, if it is such a code.
    fn take<'a>(&self, parts: &[&'a str]) -> Option<Vec<&'a str>> {
        if parts.len() != self.0.len() {
            return None;
        }
        let mut values = Vec::new();
        for (segment, part) in self.0.iter().zip(parts) {
            match segment {
                Segment::Literal(text) if text == part => {}
                Segment::Parameter(_) if is_digits(part) => values.push(*part),
                _ => return None,
            }
        }
        Some(values)
    }

    fn literals(&self) -> usize {
        self.0.len() - self.parameters().count()
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.len() <= 20 && text.bytes().all(|it| it.is_ascii_digit())
}

/// A code, its screen, and the slots of its variables.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub pattern: Pattern,
    pub screen: ScreenId,
    pub slots: Vec<usize>,
}

/// All codes of a menu, those with most digits first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Codes(Vec<Entry>);

impl Codes {
    pub fn new(mut entries: Vec<Entry>) -> Self {
        entries.sort_by_key(|it| std::cmp::Reverse(it.pattern.literals()));
        Self(entries)
    }

    /// The screens that codes show.
    pub fn screens(&self) -> impl Iterator<Item = ScreenId> {
        self.0.iter().map(|it| it.screen)
    }

    /// What was dialled: its screen, and variables with their values.
    pub fn find<'a>(&self, dialled: &'a str) -> Option<(ScreenId, Vec<(usize, &'a str)>)> {
        if dialled.len() > DIALLED_MAX {
            return None;
        }
        let inner = dialled.trim().strip_prefix('*')?;
        let parts: Vec<&str> = inner
            .strip_suffix('#')
            .unwrap_or(inner)
            .split('*')
            .collect();
        self.0.iter().find_map(|entry| {
            let values = entry.pattern.take(&parts)?;
            Some((
                entry.screen,
                entry.slots.iter().copied().zip(values).collect(),
            ))
        })
    }
}

/// What was dialled where a gateway tells the service code and what stood behind it.
pub(crate) fn joined(code: &str, typed: &str) -> String {
    let code = code.trim().trim_end_matches('#');
    match typed.trim_end_matches('#') {
        "" => format!("{code}#"),
        typed => format!("{code}*{typed}#"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(patterns: &[&str]) -> Codes {
        let entries = patterns.iter().enumerate().map(|(screen, text)| {
            let pattern = Pattern::parse(text).unwrap();
            let slots = (0..pattern.parameters().count()).collect();
            Entry {
                pattern,
                screen,
                slots,
            }
        });
        Codes::new(entries.collect())
    }

    #[test]
    fn the_code_with_most_digits_is_taken() {
        let codes = codes(&["*123#", "*123*{amount}#", "*123*5#", "*123*{a}*{b}#"]);
        for (dialled, expected) in [
            ("*123#", Some((0, vec![]))),
            ("*123*50#", Some((1, vec![(0, "50")]))),
            ("*123*5#", Some((2, vec![]))),
            ("*123*5*6#", Some((3, vec![(0, "5"), (1, "6")]))),
            ("*123*a#", None),
            ("*123*#", None),
            ("*124#", None),
            ("123#", None),
            ("", None),
        ] {
            assert_eq!(codes.find(dialled), expected, "{dialled}");
        }
        assert_eq!(codes.find(&format!("*123*{}#", "1".repeat(1 << 20))), None);
    }

    #[test]
    fn codes_are_checked() {
        for text in [
            "123#",
            "*123",
            "*{a}#",
            "*1*{a b}#",
            "*1**2#",
            "*1*{a}*{a}#",
            "*#",
            "*1x#",
        ] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
        let like = |one, two| {
            Pattern::parse(one)
                .unwrap()
                .is_like(&Pattern::parse(two).unwrap())
        };
        assert!(like("*1*{a}#", "*1*{b}#"));
        assert!(!like("*1*{a}#", "*1*2#") && !like("*1#", "*1*{a}#"));
    }

    #[test]
    fn a_service_code_is_joined_with_what_was_typed() {
        assert_eq!(joined("*123#", ""), "*123#");
        assert_eq!(joined("*123#", "50"), "*123*50#");
        assert_eq!(joined("*384*123#", "5*6"), "*384*123*5*6#");
    }
}
