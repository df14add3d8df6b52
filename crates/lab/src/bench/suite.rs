//! What the suites `streams` and `push` share: rounds in which systems take turns, the tables, and
//! the page. Each suite says what its cases, systems and figures are.

mod page;
mod run;
mod table;

use serde::Serialize;

use super::outcome::{self, Contender, Sample};
pub(super) use page::html;
pub(super) use run::{Plan, run};
#[cfg(test)]
pub(super) use table::case_text;
pub(super) use table::markdown_of;

/// A suite: its cases, its systems, and how they are shown.
pub(super) trait Suite: Sized {
    type System: Contender + Serialize;
    type Case: Clone + PartialEq + Serialize;
    type Figures: Sample + Clone + Serialize;

    /// The heading of the page.
    const TITLE: &'static str;
    /// Paragraphs of HTML for those who read the page alone: what is measured and how.
    const METHOD: &'static str;
    /// The names of all scenarios and what they are, in the order of the page.
    const SCENARIOS: &'static [(&'static str, &'static str)];
    /// The columns of the table in Markdown.
    const COLUMNS: &'static [&'static str];

    fn scenario(case: &Self::Case) -> &str;

    /// The case in words, without the scenario.
    fn label(case: &Self::Case) -> String;

    /// Why a system has no part in a case, or nothing.
    fn refuses(system: Self::System, case: &Self::Case) -> Option<&'static str>;

    /// Whether a reader may ask why a system has no part in a case.
    fn is_meant(_system: Self::System, _case: &Self::Case) -> bool {
        true
    }

    /// What to do when a system is not there.
    fn advice(system: Self::System) -> &'static str;

    /// Whether a fault of this system fails the run.
    fn is_ours(system: Self::System) -> bool;

    /// How many things went wrong.
    fn faults(figures: &Self::Figures) -> u64;

    /// What a reader should doubt.
    fn warnings(case: &Self::Case, figures: &Self::Figures) -> Vec<String>;

    /// The names of the columns.
    fn head(case: &Self::Case) -> &'static [&'static str];

    /// The cells of the rows of a case, in the order of [`Suite::head`].
    fn cells(rows: &[&Row<Self>]) -> Vec<Vec<String>>;

    /// The published row beside a case, in the same columns.
    fn published(case: &Self::Case) -> Option<Vec<String>>;

    /// What a case shows, one sentence each; `all` are the rows of the whole run.
    fn sentences(case: &Self::Case, rows: &[&Row<Self>], all: &[Row<Self>]) -> Vec<String>;
}

/// One system in one case.
pub(super) type Row<S> =
    outcome::Row<<S as Suite>::System, <S as Suite>::Case, <S as Suite>::Figures>;

/// The results of a run.
pub(super) type Results<S> = outcome::Results<<S as Suite>::System, Row<S>>;
