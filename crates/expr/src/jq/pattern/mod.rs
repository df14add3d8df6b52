//! Regular expressions: Unicode, in linear time, and counted while they search.

mod search;
mod syntax;

use std::cell::RefCell;

use regex_automata::MatchKind;
use regex_automata::hybrid::dfa::{self, DFA};
use regex_automata::nfa::thompson::{self, NFA, WhichCaptures, pikevm};
use regex_automata::util::primitives::PatternID;
use regex_automata::util::syntax as reading;
use regex_syntax::hir::{Hir, HirKind};

pub(super) use search::{Failed, Search};

/// The most bytes of an automaton; it has about ten thousand for each `\w`.
const SIZE_MAX: usize = 1 << 20;
/// The most bytes that the states of one deterministic automaton take before they are thrown away.
const STATES_MAX: usize = 1 << 18;
/// The longest pattern.
const LENGTH_MAX: usize = 32 * 1024;
/// The most that reading a pattern may cost, in steps of an evaluation.
const COST_MAX: usize = 200_000;

/// Flags of jq, as one text has them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flags {
    pub is_global: bool,
    pub ignores_empty: bool,
    ignores_case: bool,
    dot_is_all: bool,
    is_extended: bool,
}

impl Flags {
    /// Reads flags.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut flags = Self::default();
        for flag in text.chars() {
            match flag {
                'g' => flags.is_global = true,
                'n' => flags.ignores_empty = true,
                'i' => flags.ignores_case = true,
                'x' => flags.is_extended = true,
                'm' | 'p' => flags.dot_is_all = true,
                // `^` and `$` are the ends of the text anyway.
                's' => {}
                'l' => return Err("the flag l (the longest match) is not available".to_owned()),
                other => return Err(format!("invalid regex flag: {other}")),
            }
        }
        Ok(flags)
    }
}

/// What reading a pattern costs at most, in steps; folding the case of a class takes longest.
pub(super) fn cost(pattern: &str, flags: &Flags) -> usize {
    let folds = flags.ignores_case || pattern.contains("(?");
    let class = if folds { 2_000 } else { 300 };
    let bytes = pattern.as_bytes();
    let escapes = bytes.windows(2).filter(|pair| {
        pair[0] == b'\\'
            && matches!(
                pair[1],
                b'w' | b'W' | b'd' | b'D' | b's' | b'S' | b'p' | b'P'
            )
    });
    let classes = bytes.iter().filter(|it| matches!(it, b'[' | b'.')).count();
    20 + 4 * pattern.len() + class * (escapes.count() + classes)
}

/// A compiled regular expression, and what its searches keep.
pub(super) struct Pattern {
    nfa: NFA,
    forward: DFA,
    backward: DFA,
    captures: pikevm::PikeVM,
    /// How many places of the pattern a search can be at, at the same time.
    places: usize,
    caches: RefCell<Caches>,
}

struct Caches {
    forward: dfa::Cache,
    backward: dfa::Cache,
    captures: Option<pikevm::Cache>,
}

impl Pattern {
    /// Compiles a pattern; costs no more than [`cost`] and the size of the automaton say.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn compile(pattern: &str, flags: &Flags) -> Result<Self, String> {
        if pattern.len() > LENGTH_MAX || cost(pattern, flags) > COST_MAX {
            return Err("invalid regex: it is too large".to_owned());
        }
        let pattern = syntax::translated(pattern)?;
        let reading = reading::Config::new()
            .case_insensitive(flags.ignores_case)
            .dot_matches_new_line(flags.dot_is_all)
            .ignore_whitespace(flags.is_extended)
            .nest_limit(100);
        let tree = reading::parse_with(&pattern, &reading).map_err(|error| reason(&error))?;
        Self::of_tree(&tree).map_err(|error| reason(&error))
    }

    fn of_tree(tree: &Hir) -> Result<Self, Box<dyn std::error::Error>> {
        let config = thompson::Config::new().nfa_size_limit(Some(SIZE_MAX));
        let nfa = thompson::Compiler::new()
            .configure(config.clone())
            .build_from_hir(tree)?;
        let config = config.reverse(true).which_captures(WhichCaptures::None);
        let reversed = thompson::Compiler::new()
            .configure(config)
            .build_from_hir(tree)?;
        let config = dfa::Config::new()
            .unicode_word_boundary(true)
            .cache_capacity(STATES_MAX)
            .skip_cache_capacity_check(true);
        let mut builder = dfa::Builder::new();
        let forward = builder
            .configure(config.clone())
            .build_from_nfa(nfa.clone())?;
        let config = config.match_kind(MatchKind::All);
        let backward = builder.configure(config).build_from_nfa(reversed)?;
        let captures = pikevm::PikeVM::new_from_nfa(nfa.clone())?;
        let caches = Caches {
            forward: forward.create_cache(),
            backward: backward.create_cache(),
            captures: None,
        };
        Ok(Self {
            places: places(tree),
            nfa,
            forward,
            backward,
            captures,
            caches: RefCell::new(caches),
        })
    }

    /// The names of groups; the first is the whole match.
    pub fn names(&self) -> impl Iterator<Item = Option<&str>> {
        self.nfa.group_info().pattern_names(PatternID::ZERO)
    }

    /// About how many bytes it takes.
    pub fn size(&self) -> usize {
        let backward = self.backward.get_nfa().memory_usage();
        let caches = self.caches.try_borrow().map_or(0, |caches| {
            let captures = caches
                .captures
                .as_ref()
                .map_or(0, pikevm::Cache::memory_usage);
            caches.forward.memory_usage() + caches.backward.memory_usage() + captures
        });
        self.nfa.memory_usage() + backward + caches
    }
}

fn reason(error: &dyn std::fmt::Display) -> String {
    let text = error.to_string();
    // The last line says what is wrong; those before show where.
    let text = text.lines().last().unwrap_or_default().trim();
    format!("invalid regex: {}", text.trim_start_matches("error: "))
}

/// How many places of a pattern a search can be at, at the same time, at most.
fn places(tree: &Hir) -> usize {
    match tree.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => literal.0.len(),
        // A character that is no ASCII is up to four bytes.
        HirKind::Class(_) => 4,
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min).max(1) as usize;
            places(&repetition.sub).saturating_mul(times)
        }
        HirKind::Capture(capture) => places(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(places).fold(1, usize::saturating_add)
        }
    }
}
