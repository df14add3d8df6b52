//! Shows a report: for people as a compiler does, for editors as JSON lines.

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Renderer, Snippet};
use serde_json::json;

use crate::report::{Diagnostic, Report, Severity};
use crate::source::{SourceId, Sources, Span, floor_boundary};
use crate::within;

/// How many problems are shown.
const SHOWN_MAX: usize = 100;
/// How much of a line is shown before the place, and behind its beginning.
const BEFORE_MAX: usize = 80;
const BEHIND_MAX: usize = 160;

impl Report {
    /// The report for people, in the order of files and lines, with a count at the end.
    pub fn render(&self, sources: &Sources, color: bool) -> String {
        let renderer = if color {
            Renderer::styled()
        } else {
            Renderer::plain()
        };
        let renderer = renderer.decor_style(DecorStyle::Ascii);
        let sorted = self.sorted();
        let mut text = String::new();
        for diagnostic in sorted.iter().take(SHOWN_MAX) {
            text.push_str(&renderer.render(&[group(diagnostic, sources)]));
            text.push_str("\n\n");
        }
        if sorted.len() > SHOWN_MAX {
            text.push_str(&format!("and {} more\n", sorted.len() - SHOWN_MAX));
        }
        text.push_str(&self.summary());
        text
    }

    /// The report for programs: one JSON object a line with `code`, `severity`, `message`, `hint`,
    /// and `file`, `line`, `column`, `end_line`, `end_column` where it has a place.
    pub fn render_json(&self, sources: &Sources) -> String {
        let mut text = String::new();
        for diagnostic in self.sorted() {
            text.push_str(&json_line(diagnostic, sources).to_string());
            text.push('\n');
        }
        text
    }

    fn sorted(&self) -> Vec<&Diagnostic> {
        let mut sorted: Vec<&Diagnostic> = self.diagnostics().iter().collect();
        sorted.sort_by_key(|diagnostic| diagnostic.span.map(|span| (span.source, span.start)));
        sorted
    }

    fn summary(&self) -> String {
        let count = |severity| {
            self.diagnostics()
                .iter()
                .filter(|found| found.severity == severity)
                .count()
        };
        let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
        let mut files: Vec<SourceId> = self
            .diagnostics()
            .iter()
            .filter_map(|found| found.span)
            .map(|at| at.source)
            .collect();
        files.sort_unstable();
        files.dedup();
        let plural = |count: usize, word: &str| {
            format!("{count} {word}{}", if count == 1 { "" } else { "s" })
        };
        let mut parts = vec![plural(errors, "error")];
        if warnings > 0 {
            parts.push(plural(warnings, "warning"));
        }
        match files.len() {
            0 => format!("{}\n", parts.join(", ")),
            count => format!("{} in {}\n", parts.join(", "), plural(count, "file")),
        }
    }
}

fn group<'a>(diagnostic: &'a Diagnostic, sources: &'a Sources) -> Group<'a> {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let title = level
        .primary_title(visible(&diagnostic.message))
        .id(diagnostic.code.as_str());
    let mut group = Group::with_title(title);
    if let Some(span) = place_of(diagnostic, sources) {
        group = group.element(snippet(sources, span, AnnotationKind::Primary, ""));
    }
    for (span, label) in &diagnostic.related {
        group = group.element(snippet(sources, *span, AnnotationKind::Context, label));
    }
    if let Some(hint) = &diagnostic.hint {
        group = group.element(Level::HELP.message(visible(hint)));
    }
    group
}

/// The place of a problem, narrowed down to the part of a text that it is about.
fn place_of(diagnostic: &Diagnostic, sources: &Sources) -> Option<Span> {
    let span = diagnostic.span?;
    Some(match &diagnostic.within {
        Some(part) => within::narrow(sources, span, part),
        None => span,
    })
}

/// The line of a place, cut where it is very long, with the place marked.
fn snippet<'a>(
    sources: &'a Sources,
    span: Span,
    kind: AnnotationKind,
    label: &'a str,
) -> Snippet<'a, Annotation<'a>> {
    let text = sources.text(span.source);
    let start = floor_boundary(text, span.start);
    let line_start = text
        .get(..start)
        .and_then(|before| before.rfind('\n'))
        .map_or(0, |at| at + 1);
    let line = text.get(line_start..).unwrap_or_default();
    let line = line
        .split('\n')
        .next()
        .unwrap_or_default()
        .trim_end_matches('\r');
    let within = (start - line_start).min(line.len());
    let cut_start = floor_boundary(line, within.saturating_sub(BEFORE_MAX));
    let cut_end = floor_boundary(line, within + BEHIND_MAX);
    let shown = line.get(cut_start..cut_end).unwrap_or_default();
    let from = within - cut_start;
    let length = span.end.saturating_sub(start).max(1);
    let to = floor_boundary(shown, from.saturating_add(length)).max(from);
    let line_number = sources.position(span.source, start).0;
    let mut annotation = kind.span(from..to);
    if !label.is_empty() {
        annotation = annotation.label(label);
    }
    Snippet::source(shown)
        .path(sources.name(span.source))
        .line_start(line_number)
        .annotation(annotation)
}

/// Text with its control characters made visible.
fn visible(text: &str) -> String {
    let escape = |character: char| {
        if character.is_control() {
            character.escape_default().collect()
        } else {
            character.to_string()
        }
    };
    text.chars().map(escape).collect::<String>()
}

fn json_line(diagnostic: &Diagnostic, sources: &Sources) -> serde_json::Value {
    let severity = match diagnostic.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let mut line = json!({
        "code": diagnostic.code.as_str(),
        "severity": severity,
        "message": diagnostic.message,
    });
    let Some(members) = line.as_object_mut() else {
        return line;
    };
    if let Some(hint) = &diagnostic.hint {
        members.insert("hint".into(), hint.as_str().into());
    }
    if let Some(span) = place_of(diagnostic, sources) {
        members.extend(place(sources, span));
    }
    let related: Vec<serde_json::Value> = diagnostic
        .related
        .iter()
        .map(|(span, label)| {
            let mut members = place(sources, *span);
            members.insert("message".into(), label.as_str().into());
            members.into()
        })
        .collect();
    if !related.is_empty() {
        members.insert("related".into(), related.into());
    }
    line
}

fn place(sources: &Sources, span: Span) -> serde_json::Map<String, serde_json::Value> {
    let (line, column) = sources.position(span.source, span.start);
    let (end_line, end_column) = sources.position(span.source, span.end);
    let mut members = serde_json::Map::new();
    members.insert("file".into(), sources.name(span.source).into());
    members.insert("line".into(), line.into());
    members.insert("column".into(), column.into());
    members.insert("end_line".into(), end_line.into());
    members.insert("end_column".into(), end_column.into());
    members
}

#[cfg(test)]
mod tests;
