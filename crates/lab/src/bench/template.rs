//! Configuration templates of the systems: `${name}` is replaced, `${ ...}` and `${! ...}` are
//! left, and a line that begins with `?flag ` or `!flag ` stays only when the flag is set, or is
//! not. A text of several lines is indented like the line in which it stands.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail};

/// What a template is filled with.
#[derive(Debug, Default)]
pub(crate) struct Values {
    texts: BTreeMap<&'static str, String>,
    flags: BTreeSet<&'static str>,
}

impl Values {
    /// Sets a text.
    pub fn text(&mut self, name: &'static str, text: impl ToString) -> &mut Self {
        self.texts.insert(name, text.to_string());
        self
    }

    /// Sets a flag when the condition holds.
    pub fn flag(&mut self, name: &'static str, condition: bool) -> &mut Self {
        if condition {
            self.flags.insert(name);
        }
        self
    }

    /// Fills a template.
    ///
    /// # Errors
    /// When it names a text that is not set.
    pub fn fill(&self, template: &str) -> anyhow::Result<String> {
        let mut out = String::new();
        for line in template.lines() {
            if let Some(line) = self.choose(line)? {
                self.replace(line, &mut out)?;
                out.push('\n');
            }
        }
        Ok(out)
    }

    /// The line without its conditions, if it stays.
    fn choose<'a>(&self, mut line: &'a str) -> anyhow::Result<Option<&'a str>> {
        while let Some(mark) = line.chars().next().filter(|letter| "?!".contains(*letter)) {
            let (flag, rest) = line
                .split_once(' ')
                .with_context(|| format!("a condition without a line: {line}"))?;
            let is_set = self
                .flags
                .iter()
                .any(|name| *name == flag.trim_start_matches(mark));
            if is_set != (mark == '?') {
                return Ok(None);
            }
            line = rest;
        }
        Ok(Some(line))
    }

    fn replace(&self, mut line: &str, out: &mut String) -> anyhow::Result<()> {
        let indent = &line[..line.len() - line.trim_start().len()];
        let indent = format!("\n{indent}");
        while let Some((before, behind)) = line.split_once("${") {
            // Flows have `${ expression }` of their own, and `${! mapping }`.
            if behind.starts_with([' ', '!']) {
                out.push_str(before);
                out.push_str("${");
                line = behind;
                continue;
            }
            let Some((name, rest)) = behind.split_once('}') else {
                bail!("`${{` without an end: {line}");
            };
            let text = self.texts.get(name);
            out.push_str(before);
            let text = text.with_context(|| format!("nothing is called {name}"))?;
            out.push_str(&text.replace('\n', &indent));
            line = rest;
        }
        out.push_str(line);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_lines_are_chosen() {
        let mut values = Values::default();
        values.text("port", 80).flag("tls", true).flag("h2", false);
        let template = "listen ${port};\n?tls   cert;\n?h2 h2;\n!h2  h1 ${port}\n?tls !h2 both\n";
        let wanted = "listen 80;\n  cert;\n h1 80\nboth\n";
        assert_eq!(values.fill(template).unwrap(), wanted);
        values.text("lines", "a\n  b\nc");
        assert_eq!(
            values.fill("x:\n  ${lines}\n").unwrap(),
            "x:\n  a\n    b\n  c\n"
        );
        assert_eq!(
            values.fill("a ${ .b } ${! c } ${port}").unwrap(),
            "a ${ .b } ${! c } 80\n"
        );
        assert!(values.fill("${other}").is_err());
        assert!(values.fill("${port").is_err());
    }
}
