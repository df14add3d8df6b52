//! What narrows a simple type (XML Schema Part 2, section 4.3).

use std::cmp::Ordering;
use std::sync::Arc;

use expr::xml::Element;

use crate::soap::names::XS;
use crate::soap::problem::{Place, Problem};
use crate::soap::xsd::builtin::{Builtin, WhiteSpace};
use crate::soap::xsd::lexical::Decimal;

/// What narrows a simple type. Patterns are not looked at: the other side checks them.
#[derive(Debug, Default)]
pub struct Facets {
    /// The texts that there are.
    pub enumeration: Vec<Arc<str>>,
    /// The number of characters, bytes or items: the least and the greatest.
    pub length: (Option<usize>, Option<usize>),
    /// Limits of numbers: the text, and whether it is one of them itself.
    pub least: Option<(Decimal, bool)>,
    /// The other end.
    pub greatest: Option<(Decimal, bool)>,
    /// The most digits, and the most behind the point.
    pub digits: (Option<usize>, Option<usize>),
    /// What becomes of white space.
    pub white_space: Option<WhiteSpace>,
}

impl Facets {
    /// Reads the facets within a restriction.
    ///
    /// # Errors
    /// For one that is none, or whose value is.
    pub fn read(restriction: &Element, file: &Arc<str>) -> Result<Self, Problem> {
        let mut facets = Self::default();
        for facet in &restriction.children {
            if facet.namespace.as_deref() != Some(XS) {
                continue;
            }
            let value = facet.attribute("value").unwrap_or_default();
            let is_known = facets.take(&facet.name, value);
            if is_known.is_none() {
                let place = Place {
                    file: Arc::clone(file),
                    line: facet.line,
                };
                let message = format!("`{}` has a value that it cannot have", facet.name);
                return Err(Problem::new(&place, message));
            }
        }
        Ok(facets)
    }

    fn take(&mut self, name: &str, value: &str) -> Option<()> {
        let count = || value.trim().parse::<usize>().ok();
        // Limits of dates are not compared: their order is only partial.
        let limit = |is_in: bool| Decimal::parse(value.trim()).map(|it| (it, is_in));
        match name {
            "enumeration" => self.enumeration.push(value.into()),
            "length" => self.length = (Some(count()?), Some(count()?)),
            "minLength" => self.length.0 = Some(count()?),
            "maxLength" => self.length.1 = Some(count()?),
            "minInclusive" => self.least = limit(true),
            "minExclusive" => self.least = limit(false),
            "maxInclusive" => self.greatest = limit(true),
            "maxExclusive" => self.greatest = limit(false),
            "totalDigits" => self.digits.0 = Some(count()?),
            "fractionDigits" => self.digits.1 = Some(count()?),
            "whiteSpace" => {
                self.white_space = Some(match value {
                    "preserve" => WhiteSpace::Preserve,
                    "replace" => WhiteSpace::Replace,
                    "collapse" => WhiteSpace::Collapse,
                    _ => return None,
                });
            }
            _ => {}
        }
        Some(())
    }

    /// Why a text is none of them; `count` is its length as the facets mean it.
    pub fn refuses(&self, text: &str, builtin: Option<Builtin>, count: usize) -> Option<String> {
        if !self.enumeration.is_empty()
            && !self.enumeration.iter().any(|it| same(it, text, builtin))
        {
            let mut names: Vec<String> = self.enumeration.iter().take(8).map(quoted).collect();
            if self.enumeration.len() > names.len() {
                names.push("...".to_owned());
            }
            return Some(format!("is one of {}", names.join(", ")));
        }
        let (min, max) = self.length;
        if min.is_some_and(|min| count < min) {
            return Some(format!(
                "has a length of at least {}",
                min.unwrap_or_default()
            ));
        }
        if max.is_some_and(|max| count > max) {
            return Some(format!(
                "has a length of at most {}",
                max.unwrap_or_default()
            ));
        }
        let is_number = matches!(builtin, Some(Builtin::Decimal | Builtin::Integer(..)));
        let number =
            Decimal::parse_json(text).filter(|_| is_number || builtin == Some(Builtin::Float));
        number.and_then(|number| self.refuses_number(&number))
    }

    fn refuses_number(&self, number: &Decimal) -> Option<String> {
        if let Some((least, is_in)) = &self.least {
            let order = number.compare(least);
            if order == Ordering::Less || (!is_in && order == Ordering::Equal) {
                let words = if *is_in { "at least" } else { "more than" };
                return Some(format!("is {words} {}", least.text()));
            }
        }
        if let Some((greatest, is_in)) = &self.greatest {
            let order = number.compare(greatest);
            if order == Ordering::Greater || (!is_in && order == Ordering::Equal) {
                let words = if *is_in { "at most" } else { "less than" };
                return Some(format!("is {words} {}", greatest.text()));
            }
        }
        let (total, fraction) = number.digits();
        match self.digits {
            (Some(max), _) if total > max => Some(format!("has at most {max} digits")),
            (_, Some(max)) if fraction > max => {
                Some(format!("has at most {max} digits behind the point"))
            }
            _ => None,
        }
    }
}

fn quoted(text: &Arc<str>) -> String {
    format!("`{}`", super::map_error::shown(text))
}

/// Whether two texts are the same value.
fn same(one: &str, other: &str, builtin: Option<Builtin>) -> bool {
    let numbers = || match builtin {
        Some(Builtin::Decimal | Builtin::Integer(..)) => {
            Some(Decimal::parse(one)?.compare(&Decimal::parse(other)?) == Ordering::Equal)
        }
        _ => None,
    };
    one == other || numbers() == Some(true)
}
