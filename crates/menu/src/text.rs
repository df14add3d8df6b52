//! The text of a screen as a phone gets it: how long it is, and how it is split into pages.
//!
//! A USSD string has 160 octets (3GPP TS 23.038): 182 septets of the GSM 7-bit default alphabet, or
//! 80 code units of UCS-2 as soon as one character is outside that alphabet.

mod gsm;
mod transliterate;

use unicode_segmentation::UnicodeSegmentation;

pub use transliterate::transliterate;

/// The most septets of a USSD string.
pub const SEPTETS_MAX: usize = 182;
/// The fewest septets that a gateway may be limited to: below, labels leave no room for text.
pub const SEPTETS_MIN: usize = 60;

/// How a text is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// The GSM 7-bit default alphabet with its extension table.
    Gsm7,
    /// UCS-2, which phones read as UTF-16.
    Ucs2,
}

/// How much fits on a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    septets: usize,
    /// How many characters the gateway makes of a line break.
    line_break: usize,
}

impl Default for Limit {
    fn default() -> Self {
        Self {
            septets: SEPTETS_MAX,
            line_break: 1,
        }
    }
}

impl Limit {
    /// A limit in septets; `None` when it is not from 60 to 182.
    pub fn new(septets: usize) -> Option<Self> {
        let is_possible = (SEPTETS_MIN..=SEPTETS_MAX).contains(&septets);
        is_possible.then_some(Self {
            septets,
            ..Self::default()
        })
    }

    /// The same where each line break becomes so many characters.
    #[must_use]
    pub fn with_line_breaks(self, characters: usize) -> Self {
        Self {
            line_break: characters,
            ..self
        }
    }

    /// Whether a text without labels is one page.
    pub fn holds_all(self, text: &str) -> bool {
        self.holds(text, Size::of(""))
    }

    /// The most units of an encoding: septets, or UTF-16 code units in the same octets.
    pub fn units(self, encoding: Encoding) -> usize {
        match encoding {
            Encoding::Gsm7 => self.septets,
            Encoding::Ucs2 => (self.septets * 7).div_ceil(8) / 2,
        }
    }

    /// Whether a text fits beside its labels. A long one is not read to its end.
    fn holds(self, text: &str, footer: Size) -> bool {
        text.len() <= self.septets * 4 && self.fits(Size::of(text).plus(footer))
    }

    /// Whether a text of this size fits.
    fn fits(self, size: Size) -> bool {
        let (encoding, units) = size.encoded();
        let more = size.breaks * self.line_break.saturating_sub(1);
        units + more <= self.units(encoding)
    }
}

/// The size of a text in both encodings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size {
    /// `None` when a character is outside the alphabet.
    septets: Option<usize>,
    utf16: usize,
    /// How many of the characters are line feeds.
    breaks: usize,
}

impl Size {
    fn of(text: &str) -> Self {
        let mut septets = Some(0);
        let (mut utf16, mut breaks) = (0, 0);
        for character in text.chars() {
            let more = gsm::septets(character);
            septets = septets.zip(more).map(|(so_far, more)| so_far + more);
            utf16 += character.len_utf16();
            breaks += usize::from(character == '\n');
        }
        Self {
            septets,
            utf16,
            breaks,
        }
    }

    fn plus(self, other: Self) -> Self {
        let septets = self.septets.zip(other.septets);
        Self {
            septets: septets.map(|(one, two)| one + two),
            utf16: self.utf16 + other.utf16,
            breaks: self.breaks + other.breaks,
        }
    }

    fn encoded(self) -> (Encoding, usize) {
        match self.septets {
            Some(septets) => (Encoding::Gsm7, septets),
            None => (Encoding::Ucs2, self.utf16),
        }
    }
}

/// How a text is encoded, and how many units of that encoding it has.
pub fn measure(text: &str) -> (Encoding, usize) {
    Size::of(text).encoded()
}

/// The first character of a text that makes it UCS-2.
pub fn outside_alphabet(text: &str) -> Option<char> {
    text.chars().find(|it| gsm::septets(*it).is_none())
}

/// What stands below the text on a page.
#[derive(Clone, Copy, Debug, Default)]
pub struct Footers<'a> {
    /// On each page but the last.
    pub more: &'a str,
    /// On each page but the first.
    pub back: &'a str,
    /// On the first page.
    pub first: &'a str,
    /// On each page, at the end.
    pub always: &'a str,
    /// Whether the session ends with the last page, where no key does anything.
    pub ends: bool,
}

/// A page of a screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The part of the screen's text: those of all pages, joined, are the text.
    pub content: String,
    /// The labels below it, each on a line of its own.
    pub footer: String,
}

impl Page {
    /// What is sent.
    pub fn text(&self) -> String {
        let mut text = self.content.clone();
        join_line(&mut text, &self.footer);
        text
    }
}

/// Puts text on a line of its own.
pub fn join_line(text: &mut String, line: &str) {
    if !text.is_empty() && !text.ends_with('\n') && !line.is_empty() {
        text.push('\n');
    }
    text.push_str(line);
}

impl Footers<'_> {
    fn of(&self, is_first: bool, is_last: bool) -> String {
        let mut footer = String::new();
        for (label, is_there) in [
            (self.more, !is_last),
            (self.back, !(is_first || is_last && self.ends)),
            (self.first, is_first),
            (self.always, true),
        ] {
            if is_there {
                join_line(&mut footer, label);
            }
        }
        footer
    }

    /// Whether the labels leave half of a page, in either encoding, to the text.
    pub fn leave_room(&self, limit: Limit) -> bool {
        [true, false].into_iter().all(|is_first| {
            let size = Size::of(&self.of(is_first, false));
            let breaks = size.breaks + 1;
            let more = breaks * limit.line_break - size.breaks;
            let fits = |units: usize, encoding| (units + more) * 2 <= limit.units(encoding);
            let septets = size.septets;
            fits(size.utf16, Encoding::Ucs2) && septets.is_none_or(|it| fits(it, Encoding::Gsm7))
        })
    }
}

/// Splits a text into pages of which none is longer than the limit, its labels included. No
/// grapheme cluster is split, but for one that alone is longer than a page: that one between
/// characters.
///
/// The labels [leave room](Footers::leave_room). At least one page comes out.
pub fn paginate(text: &str, footers: Footers<'_>, limit: Limit) -> Vec<Page> {
    let mut pages = Vec::new();
    let mut left = text;
    loop {
        let is_first = pages.is_empty();
        let last = footers.of(is_first, true);
        if limit.holds(left, below(&last)) {
            pages.push(Page {
                content: left.to_owned(),
                footer: last,
            });
            return pages;
        }
        let footer = footers.of(is_first, false);
        let end = page_end(left, below(&footer), limit);
        let (content, rest) = left.split_at(end);
        pages.push(Page {
            content: content.to_owned(),
            footer,
        });
        left = rest;
    }
}

/// The size of a footer with the line break in front of it.
fn below(footer: &str) -> Size {
    let size = Size::of(footer);
    match footer.is_empty() {
        true => size,
        false => size.plus(Size::of("\n")),
    }
}

/// Where the first page of a text ends that does not fit on it: behind a line where that wastes
/// less than half of the page, else behind a word, else behind a grapheme cluster.
fn page_end(text: &str, footer: Size, limit: Limit) -> usize {
    let (mut size, mut end) = (footer, 0);
    let (mut line, mut word) = (0, 0);
    // No page has more: a cluster that goes on behind it does not fit.
    let most = text.floor_char_boundary(4 * limit.septets + 4);
    let (window, _) = text.split_at(most);
    for cluster in window.graphemes(true) {
        size = size.plus(Size::of(cluster));
        if !limit.fits(size) {
            break;
        }
        end += cluster.len();
        if cluster.ends_with('\n') {
            line = end;
        } else if cluster == " " {
            word = end;
        }
    }
    match [line, word].into_iter().find(|it| *it * 2 > end) {
        Some(found) => found,
        None if end > 0 => end,
        None => within_cluster(text, footer, limit),
    }
}

/// Where a page ends whose first grapheme cluster is longer than it is: behind as many characters
/// as fit, at least one.
fn within_cluster(text: &str, footer: Size, limit: Limit) -> usize {
    let (mut size, mut end) = (footer, 0);
    for character in text.chars() {
        let mut buffer = [0; 4];
        size = size.plus(Size::of(character.encode_utf8(&mut buffer)));
        if end > 0 && !limit.fits(size) {
            break;
        }
        end += character.len_utf8();
    }
    end
}

#[cfg(test)]
mod tests;
