//! Which hubs a topic names (section 4 of the recommendation): in `Link` headers, else in `<link>`
//! elements of HTML, Atom or RSS.

use crate::link::links;
use crate::url::Url;

/// The most bytes of a document in which links are looked for.
pub const DOCUMENT_MAX: usize = 1 << 20;
/// The most hubs of a topic.
const HUBS_MAX: usize = 8;
/// The most bytes of a start tag.
const TAG_MAX: usize = 8 * 1024;

/// What a topic says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovered {
    /// Its hubs, the preferred one first.
    pub hubs: Vec<Url>,
    /// The URL under which it is subscribed to.
    pub topic: Url,
}

/// A topic that was fetched.
#[derive(Clone, Copy, Debug)]
pub struct Fetched<'a> {
    /// Where it was found: references are relative to it.
    pub url: &'a Url,
    /// Its `Link` fields.
    pub links: &'a [&'a str],
    /// Its `Content-Type`.
    pub content_type: &'a str,
    /// Its content.
    pub body: &'a [u8],
}

/// Why nobody can subscribe to a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotFound {
    /// It names no hub.
    Hub,
    /// It names a hub and not itself.
    Topic,
}

impl NotFound {
    /// A sentence for logs.
    pub fn explanation(self) -> &'static str {
        match self {
            Self::Hub => "the topic names no hub",
            Self::Topic => "the topic names a hub, but not itself (rel=self)",
        }
    }
}

impl Fetched<'_> {
    /// The hubs and the URL of the topic. Headers go before the document: one that names a hub
    /// there is not looked into.
    ///
    /// # Errors
    /// When it does not say both.
    pub fn discover(&self) -> Result<Discovered, NotFound> {
        let mut found = Found::default();
        for link in self.links.iter().flat_map(|field| links(field)) {
            found.add(self.url, link.target, |relation| link.has(relation));
        }
        if found.hubs.is_empty() {
            let body = self.body.get(..DOCUMENT_MAX).unwrap_or(self.body);
            let is_html = is_html(self.content_type);
            if is_html || is_xml(self.content_type) {
                let body = String::from_utf8_lossy(body);
                for tag in LinkElements::new(&body, is_html) {
                    let relations = tag.relations;
                    found.add(self.url, &tag.target, |relation| {
                        let mut all = relations.split_ascii_whitespace();
                        all.any(|it| it.eq_ignore_ascii_case(relation))
                    });
                }
            }
        }
        match (found.hubs.is_empty(), found.topic) {
            (true, _) => Err(NotFound::Hub),
            (false, None) => Err(NotFound::Topic),
            (false, Some(topic)) => Ok(Discovered {
                hubs: found.hubs,
                topic,
            }),
        }
    }
}

#[derive(Default)]
struct Found {
    hubs: Vec<Url>,
    topic: Option<Url>,
}

impl Found {
    fn add(&mut self, base: &Url, target: &str, has: impl Fn(&str) -> bool) {
        if !has("hub") && !has("self") {
            return;
        }
        let Ok(url) = base.join(target) else {
            return;
        };
        if has("self") && self.topic.is_none() {
            self.topic = Some(url.clone());
        }
        if has("hub") && self.hubs.len() < HUBS_MAX && !self.hubs.contains(&url) {
            self.hubs.push(url);
        }
    }
}

fn essence(content_type: &str) -> String {
    let essence = content_type.split(';').next().unwrap_or_default();
    essence.trim().to_ascii_lowercase()
}

fn is_html(content_type: &str) -> bool {
    essence(content_type) == "text/html"
}

fn is_xml(content_type: &str) -> bool {
    let essence = essence(content_type);
    matches!(essence.as_str(), "application/xml" | "text/xml") || essence.ends_with("+xml")
}

/// A `<link>` element.
struct LinkElement<'a> {
    relations: std::borrow::Cow<'a, str>,
    target: std::borrow::Cow<'a, str>,
}

/// The `<link>` elements of a document, in HTML those of the head, in XML those of any prefix: that
/// of Atom is `atom` by habit only. RSS's own have no attributes.
struct LinkElements<'a> {
    rest: &'a str,
    is_html: bool,
}

impl<'a> LinkElements<'a> {
    fn new(text: &'a str, is_html: bool) -> Self {
        Self {
            rest: text,
            is_html,
        }
    }

    /// Leaves out everything up to and including this end; what is not ended is left out whole.
    fn skip_past(&mut self, end: &str) {
        let at = find_ignoring_case(self.rest, end).map(|at| at + end.len());
        self.rest = at.and_then(|at| self.rest.get(at..)).unwrap_or_default();
    }
}

fn find_ignoring_case(text: &str, wanted: &str) -> Option<usize> {
    let (text, wanted) = (text.as_bytes(), wanted.as_bytes());
    let mut places = text.windows(wanted.len());
    places.position(|it| it.eq_ignore_ascii_case(wanted))
}

impl<'a> Iterator for LinkElements<'a> {
    type Item = LinkElement<'a>;

    fn next(&mut self) -> Option<LinkElement<'a>> {
        loop {
            let start = self.rest.find('<')?;
            self.rest = self.rest.get(start + 1..)?;
            if self.rest.starts_with("!--") {
                self.skip_past("-->");
                continue;
            }
            if self.rest.starts_with("![CDATA[") {
                self.skip_past("]]>");
                continue;
            }
            let end = end_of_tag(self.rest)?;
            let (tag, behind) = self.rest.split_at(end);
            self.rest = behind;
            let name_end = tag.find(|it: char| it.is_whitespace() || it == '/');
            let (name, attributes) = tag.split_at(name_end.unwrap_or(tag.len()));
            if self.is_html {
                let name = name.to_ascii_lowercase();
                match name.as_str() {
                    // What stands there is no markup.
                    "script" | "style" | "title" | "template" | "noscript" => {
                        self.skip_past(&format!("</{name}"));
                        continue;
                    }
                    // Links of the body may be somebody else's comment.
                    "body" => return None,
                    _ => {}
                }
            }
            let local = name.rsplit(':').next().unwrap_or_default();
            let is_link = match self.is_html {
                true => name.eq_ignore_ascii_case("link"),
                false => local == "link",
            };
            let Some(element) = is_link.then(|| element(attributes)).flatten() else {
                continue;
            };
            return Some(element);
        }
    }
}

/// Where a start tag ends: at the `>` that is not within quotes.
fn end_of_tag(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, byte) in text.bytes().enumerate().take(TAG_MAX) {
        match (quote, byte) {
            (None, b'>') => return Some(at),
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), byte) if byte == open => quote = None,
            _ => {}
        }
    }
    // A quote that nobody closes is no quote: an apostrophe in a text behind a stray `<`.
    text.find('>')
}

fn element(attributes: &str) -> Option<LinkElement<'_>> {
    let (mut relations, mut target) = (None, None);
    for (name, value) in Attributes(attributes) {
        // The first one counts, as in HTML.
        if name.eq_ignore_ascii_case("rel") && relations.is_none() {
            relations = Some(unescape(value));
        } else if name.eq_ignore_ascii_case("href") && target.is_none() {
            target = Some(unescape(value));
        }
    }
    Some(LinkElement {
        relations: relations?,
        target: target?,
    })
}

/// The attributes of a start tag.
struct Attributes<'a>(&'a str);

impl<'a> Iterator for Attributes<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<(&'a str, &'a str)> {
        let is_between = |it: char| it.is_whitespace() || it == '/';
        let text = self.0.trim_start_matches(is_between);
        if text.is_empty() {
            return None;
        }
        let end = text.find(|it: char| is_between(it) || it == '=');
        let (name, rest) = text.split_at(end.unwrap_or(text.len()));
        let Some(value) = rest.trim_start().strip_prefix('=') else {
            self.0 = rest;
            return Some((name, ""));
        };
        let value = value.trim_start();
        let quote = value.chars().next().filter(|it| matches!(it, '"' | '\''));
        let (value, rest) = match quote {
            Some(quote) => {
                let inner = value.get(1..).unwrap_or_default();
                inner.split_once(quote).unwrap_or((inner, ""))
            }
            None => {
                let end = value.find(char::is_whitespace);
                value.split_at(end.unwrap_or(value.len()))
            }
        };
        self.0 = rest;
        Some((name, value))
    }
}

/// A value without the references that URLs have: `&amp;` and numbers. Others stay as they are.
fn unescape(value: &str) -> std::borrow::Cow<'_, str> {
    if !value.contains('&') {
        return value.into();
    }
    let mut text = String::with_capacity(value.len());
    let mut rest = value;
    while let Some((before, behind)) = rest.split_once('&') {
        text.push_str(before);
        let reference = behind.split_once(';');
        let character = reference.and_then(|(name, _)| character(name));
        match (character, reference) {
            (Some(character), Some((_, behind))) => {
                text.push(character);
                rest = behind;
            }
            _ => {
                text.push('&');
                rest = behind;
            }
        }
    }
    text.push_str(rest);
    text.into()
}

fn character(name: &str) -> Option<char> {
    let number = match name {
        "amp" => return Some('&'),
        "quot" => return Some('"'),
        "apos" => return Some('\''),
        "lt" => return Some('<'),
        "gt" => return Some('>'),
        name => name.strip_prefix('#')?,
    };
    let code = match number.strip_prefix(['x', 'X']) {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => number.parse(),
    };
    char::from_u32(code.ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn discover(
        links: &[&str],
        content_type: &str,
        body: &str,
    ) -> Result<(Vec<String>, String), NotFound> {
        let url = Url::parse("https://t.example/feeds/news?x=1").unwrap();
        let fetched = Fetched {
            url: &url,
            links,
            content_type,
            body: body.as_bytes(),
        };
        let found = fetched.discover()?;
        let hubs = found.hubs.iter().map(|it| it.as_str().to_owned());
        Ok((hubs.collect(), found.topic.as_str().to_owned()))
    }

    fn both(hub: &str, topic: &str) -> Result<(Vec<String>, String), NotFound> {
        Ok((vec![hub.to_owned()], topic.to_owned()))
    }

    #[test]
    fn headers_name_hubs_and_topic() {
        let found = discover(
            &[
                "<https://hub.example/>; rel=\"hub\", </hub2>; rel=hub",
                "<https://hub.example/>; rel=hub, <news>; rel=\"self\"",
            ],
            "application/json",
            "{}",
        );
        let hubs = ["https://hub.example/", "https://t.example/hub2"];
        let topic = "https://t.example/feeds/news".to_owned();
        assert_eq!(found, Ok((hubs.map(str::to_owned).to_vec(), topic)));
    }

    #[test]
    fn headers_go_before_the_document() {
        let html = "<link rel=hub href=https://evil.example/><link rel=self href=/other>";
        let links = ["<https://hub.example/>; rel=hub, <https://t.example/a>; rel=self"];
        let found = discover(&links, "text/html", html);
        assert_eq!(found, both("https://hub.example/", "https://t.example/a"));
        // Of a header without hub nothing else is lost.
        let found = discover(&["</a>; rel=self"], "text/html", html);
        assert_eq!(found, both("https://evil.example/", "https://t.example/a"));
    }

    #[test]
    fn html_is_read_as_browsers_read_it() {
        let html = "<!DOCTYPE html><HTML><head><title>a <link rel=hub href=/no> \u{e4}</title>\
            <!-- <link rel=hub href=/no> --><script>if (a < b) \"<link rel=hub href=/no>\"</script>\
            <meta charset=utf-8><LINK data-x='>' HREF = 'https://hub.example/?a=1&amp;b=&#50;' \
            Rel=\"Hub x\" rel=self /><link href=\"?y\" rel=self></head>\
            <body><link rel=hub href=/no></body>";
        let found = discover(&[], "text/html; charset=utf-8", html);
        let topic = "https://t.example/feeds/news?y";
        assert_eq!(found, both("https://hub.example/?a=1&b=2", topic));
    }

    #[test]
    fn atom_and_rss_are_read() {
        let atom = "<?xml version=\"1.0\"?><feed xmlns=\"http://www.w3.org/2005/Atom\">\
            <title>it's &lt;link&gt;</title><link rel=\"hub\" href=\"https://hub.example/\"/>\
            <link rel=\"self\" href=\"https://t.example/atom\"/></feed>";
        let expected = both("https://hub.example/", "https://t.example/atom");
        assert_eq!(discover(&[], "application/atom+xml", atom), expected);
        let rss = "<rss xmlns:a10=\"http://www.w3.org/2005/Atom\"><channel>\
            <link>https://t.example/</link><description><![CDATA[<a10:link rel=\"hub\" href=\"/no\"/>]]>\
            </description><a10:link rel='hub' href='https://hub.example/'/>\
            <a10:link rel='self' href='https://t.example/atom'/></channel></rss>";
        assert_eq!(discover(&[], "text/xml", rss), expected);
        assert_eq!(discover(&[], "application/rss+xml", rss), expected);
    }

    #[test]
    fn what_is_missing_is_reported() {
        let hub = "<link rel=hub href=https://hub.example/>";
        assert_eq!(discover(&[], "text/html", hub), Err(NotFound::Topic));
        for (content_type, body) in [
            ("text/html", ""),
            ("text/html", "<link rel=hub"),
            (
                "text/html",
                "<link rel=hub href=ftp://hub/><link rel=self href=/a>",
            ),
            (
                "text/html",
                "<!-- <link rel=hub href=/a><link rel=self href=/a>",
            ),
            // Not looked into: it is no document with links.
            (
                "text/plain",
                "<link rel=hub href=/a><link rel=self href=/a>",
            ),
            ("", "<link rel=hub href=/a><link rel=self href=/a>"),
        ] {
            let found = discover(&[], content_type, body);
            assert_eq!(found, Err(NotFound::Hub), "{content_type} {body}");
        }
    }

    #[test]
    fn no_document_takes_long_or_panics() {
        let begun = std::time::Instant::now();
        let long = 300_000;
        for part in [
            "<",
            "<a",
            "<link ",
            "<link rel=",
            "<!--",
            "<a\"",
            "&",
            "<link rel=\"&#",
            "\u{e4}<",
        ] {
            let body = part.repeat(long / part.len());
            let _ = discover(&[], "text/html", &body);
            let _ = discover(&[], "text/xml", &body);
        }
        assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    }
}
