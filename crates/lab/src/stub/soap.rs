//! The SOAP service of the stub: `CheckStock` says of each item that it is there, `Echo` gives a
//! text back (document/literal wrapped; SOAP 1.1 by its W3C note of 2000, SOAP 1.2 by W3C part 1).
//! Envelopes are scanned, not parsed into a tree, for the stub must not be what is measured. An
//! item whose `sku` is `FAULT` is answered with a fault.

use std::io::Write;

/// The service's description; the address in it is replaced by the one that was asked.
pub const WSDL: &str = include_str!("stock.wsdl");
const ADDRESS: &str = "127.0.0.1:8688";

const NAMESPACE: &str = "urn:lab:stock";
const SOAP_11: &str = "http://schemas.xmlsoap.org/soap/envelope/";
const SOAP_12: &str = "http://www.w3.org/2003/05/soap-envelope";
/// More of an item is on its shelf never.
const IN_STOCK: u64 = 100;
/// The item that cannot be asked for.
const FAULTY: &[u8] = b"FAULT";

/// The versions of SOAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V11,
    V12,
}

impl Version {
    fn namespace(self) -> &'static str {
        match self {
            Self::V11 => SOAP_11,
            Self::V12 => SOAP_12,
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::V11 => "text/xml; charset=utf-8",
            Self::V12 => "application/soap+xml; charset=utf-8",
        }
    }
}

/// The head of an answer; its body stands elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub status: u16,
    pub content_type: &'static str,
}

impl Reply {
    /// The words behind the status (RFC 9110 section 15).
    pub fn reason(self) -> &'static str {
        match self.status {
            200 => "OK",
            400 => "Bad Request",
            _ => "Internal Server Error",
        }
    }
}

/// Answers one request: the description to a query of `wsdl`, a reply or a fault to an envelope.
/// `authority` is how the client calls this service.
pub(super) fn answer(target: &[u8], authority: &[u8], body: &[u8], out: &mut Vec<u8>) -> Reply {
    out.clear();
    if asks_for_description(target) {
        let authority = String::from_utf8_lossy(authority);
        out.extend_from_slice(WSDL.replace(ADDRESS, &authority).as_bytes());
        return Reply {
            status: 200,
            content_type: Version::V11.content_type(),
        };
    }
    let version = match memchr::memmem::find(body, SOAP_12.as_bytes()) {
        Some(_) => Version::V12,
        None => Version::V11,
    };
    let status = match reply(version, body, out) {
        Ok(()) => 200,
        Err(fault) => {
            out.clear();
            write_fault(version, &fault, out);
            let is_bad_request = version == Version::V12 && fault.is_callers;
            if is_bad_request { 400 } else { 500 }
        }
    };
    Reply {
        status,
        content_type: version.content_type(),
    }
}

fn asks_for_description(target: &[u8]) -> bool {
    let query = memchr::memchr(b'?', target).and_then(|at| target.get(at + 1..));
    query.is_some_and(|query| query.to_ascii_lowercase().starts_with(b"wsdl"))
}

/// Why there is no reply.
#[derive(Debug, PartialEq, Eq)]
struct Fault {
    is_callers: bool,
    reason: &'static str,
    has_detail: bool,
}

impl Fault {
    fn callers(reason: &'static str) -> Self {
        Self {
            is_callers: true,
            reason,
            has_detail: false,
        }
    }
}

fn reply(version: Version, body: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
    let mut tags = Tags::new(body);
    tags.by(|tag| tag.is_start && tag.name == b"Envelope")
        .ok_or_else(|| Fault::callers("no envelope"))?;
    tags.by(|tag| tag.is_start && tag.name == b"Body")
        .ok_or_else(|| Fault::callers("no body"))?;
    let operation = tags.by(|_| true).filter(|tag| tag.is_start);
    let operation = operation.ok_or_else(|| Fault::callers("an empty body"))?;
    write(out, &["<soap:Envelope xmlns:soap=\"", version.namespace()]);
    write(out, &["\"><soap:Body>"]);
    match operation.name {
        b"CheckStock" => check_stock(&operation, &mut tags, out)?,
        b"Echo" => echo(&mut tags, out)?,
        _ => return Err(Fault::callers("no such operation")),
    }
    write(out, &["</soap:Body></soap:Envelope>"]);
    Ok(())
}

fn check_stock(operation: &Tag<'_>, tags: &mut Tags<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
    write(out, &["<CheckStockResponse xmlns=\"", NAMESPACE, "\">"]);
    let is_item_or_end = |tag: &Tag<'_>| tag.name == b"item" || tag.name == operation.name;
    while !operation.rest.ends_with(b"/") {
        let tag = tags.by(is_item_or_end);
        let tag = tag.ok_or_else(|| Fault::callers("an envelope without its end"))?;
        if tag.name == operation.name {
            break;
        }
        if !tag.is_start {
            continue;
        }
        let sku = tag.attribute(b"sku");
        let sku = sku.ok_or_else(|| Fault::callers("an item without a sku"))?;
        if sku == FAULTY {
            return Err(Fault {
                is_callers: false,
                reason: "the stock is being counted",
                has_detail: true,
            });
        }
        let quantity = tags.by(|tag| tag.is_start && tag.name == b"qty");
        let quantity = quantity.and_then(|_| number(tags.text()));
        let quantity = quantity.ok_or_else(|| Fault::callers("an item without a qty"))?;
        write(out, &["<item sku=\""]);
        quoted(sku, out);
        let is_there = if quantity <= IN_STOCK {
            "true"
        } else {
            "false"
        };
        // invariant: writing to a vector does not fail.
        let _ = write!(
            out,
            "\"><qty>{quantity}</qty><available>{is_there}</available></item>"
        );
    }
    write(out, &["</CheckStockResponse>"]);
    Ok(())
}

fn echo(tags: &mut Tags<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
    let text = tags.by(|tag| tag.is_start && tag.name == b"text");
    text.ok_or_else(|| Fault::callers("no text"))?;
    write(out, &["<EchoResponse xmlns=\"", NAMESPACE, "\"><text>"]);
    out.extend_from_slice(tags.text());
    write(out, &["</text></EchoResponse>"]);
    Ok(())
}

fn write_fault(version: Version, fault: &Fault, out: &mut Vec<u8>) {
    let detail = match fault.has_detail {
        true => format!(
            "<StockFault xmlns=\"{NAMESPACE}\"><reason>{}</reason></StockFault>",
            fault.reason
        ),
        false => String::new(),
    };
    let (namespace, reason) = (version.namespace(), fault.reason);
    // invariant: writing to a vector does not fail.
    let _ = match version {
        Version::V11 => {
            let code = if fault.is_callers { "Client" } else { "Server" };
            write!(
                out,
                "<soap:Envelope xmlns:soap=\"{namespace}\"><soap:Body><soap:Fault>\
                 <faultcode>soap:{code}</faultcode><faultstring>{reason}</faultstring>\
                 <detail>{detail}</detail></soap:Fault></soap:Body></soap:Envelope>"
            )
        }
        Version::V12 => {
            let code = if fault.is_callers {
                "Sender"
            } else {
                "Receiver"
            };
            write!(
                out,
                "<soap:Envelope xmlns:soap=\"{namespace}\"><soap:Body><soap:Fault><soap:Code>\
                 <soap:Value>soap:{code}</soap:Value></soap:Code><soap:Reason>\
                 <soap:Text xml:lang=\"en\">{reason}</soap:Text></soap:Reason>\
                 <soap:Detail>{detail}</soap:Detail></soap:Fault></soap:Body></soap:Envelope>"
            )
        }
    };
}

fn write(out: &mut Vec<u8>, texts: &[&str]) {
    texts
        .iter()
        .for_each(|text| out.extend_from_slice(text.as_bytes()));
}

/// Writes what stood in an attribute, with either quotes, between double ones.
fn quoted(raw: &[u8], out: &mut Vec<u8>) {
    for byte in raw {
        match byte {
            b'"' => out.extend_from_slice(b"&quot;"),
            _ => out.push(*byte),
        }
    }
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

/// A start or an end of an element.
#[derive(Clone, Copy, Debug)]
struct Tag<'a> {
    /// Without its prefix.
    name: &'a [u8],
    is_start: bool,
    /// What stands behind the name.
    rest: &'a [u8],
}

impl<'a> Tag<'a> {
    fn of(inside: &'a [u8]) -> Self {
        let is_start = !inside.starts_with(b"/");
        let inside = inside.strip_prefix(b"/").unwrap_or(inside);
        let is_end = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'/';
        let length = inside.iter().position(is_end).unwrap_or(inside.len());
        let (name, rest) = inside.split_at(length);
        Self {
            name: local(name),
            is_start,
            rest,
        }
    }

    /// The value of an attribute, as it stands there.
    fn attribute(&self, wanted: &[u8]) -> Option<&'a [u8]> {
        let mut rest = self.rest;
        loop {
            let equals = memchr::memchr(b'=', rest)?;
            let name = local(rest.get(..equals)?.trim_ascii());
            rest = rest.get(equals + 1..)?.trim_ascii_start();
            let quote = *rest.first()?;
            rest = rest.get(1..)?;
            let end = memchr::memchr(quote, rest)?;
            if name == wanted {
                return rest.get(..end);
            }
            rest = rest.get(end + 1..)?;
        }
    }
}

fn local(name: &[u8]) -> &[u8] {
    let colon = memchr::memchr(b':', name).map_or(0, |at| at + 1);
    name.get(colon..).unwrap_or_default()
}

/// The tags of a document one after the other, without comments and the like.
struct Tags<'a> {
    rest: &'a [u8],
}

impl<'a> Tags<'a> {
    fn new(document: &'a [u8]) -> Self {
        Self { rest: document }
    }

    fn next(&mut self) -> Option<Tag<'a>> {
        loop {
            let start = memchr::memchr(b'<', self.rest)?;
            self.rest = self.rest.get(start + 1..)?;
            let end: &[u8] = match self.rest {
                [b'!', b'-', b'-', ..] => b"-->",
                [b'!', b'[', ..] => b"]]>",
                [b'?', ..] => b"?>",
                _ => {
                    let length = tag_end(self.rest)?;
                    let (inside, rest) = self.rest.split_at(length);
                    self.rest = rest.get(1..)?;
                    return Some(Tag::of(inside));
                }
            };
            let length = memchr::memmem::find(self.rest, end)?;
            self.rest = self.rest.get(length + end.len()..)?;
        }
    }

    /// The next one that is wanted; those before it are passed.
    fn by(&mut self, is_wanted: impl Fn(&Tag<'a>) -> bool) -> Option<Tag<'a>> {
        loop {
            let tag = self.next()?;
            if is_wanted(&tag) {
                return Some(tag);
            }
        }
    }

    /// The text up to the next tag, as it stands there.
    fn text(&self) -> &'a [u8] {
        let end = memchr::memchr(b'<', self.rest).unwrap_or(self.rest.len());
        self.rest.get(..end).unwrap_or_default()
    }
}

/// Where a tag ends: a `>` that is not within quotes.
fn tag_end(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let found = at + memchr::memchr3(b'>', b'"', b'\'', bytes.get(at..)?)?;
        let byte = *bytes.get(found)?;
        if byte == b'>' {
            return Some(found);
        }
        at = found + 1;
        at += memchr::memchr(byte, bytes.get(at..)?)? + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ITEMS: &str = "<s:item s:sku = 'a&quot;\"><b'><s:qty> 3 </s:qty></s:item>\
        <!-- <s:item/> --><s:item sku=\"c\"><s:qty>101</s:qty></s:item>";

    fn envelope(namespace: &str, body: &str) -> String {
        format!(
            "<?xml version=\"1.0\"?><e:Envelope xmlns:e=\"{namespace}\" xmlns:s=\"{NAMESPACE}\">\
             <e:Header><s:item/></e:Header><e:Body>{body}</e:Body></e:Envelope>"
        )
    }

    fn ask(namespace: &str, body: &str) -> (Reply, String) {
        let mut out = b"rest of before".to_vec();
        let envelope = envelope(namespace, body);
        let reply = answer(b"/stock", b"a:1", envelope.as_bytes(), &mut out);
        (reply, String::from_utf8(out).unwrap())
    }

    #[test]
    fn items_are_answered_one_by_one() {
        let request = format!("<s:CheckStock>{ITEMS}</s:CheckStock>");
        let wanted = "<soap:Body><CheckStockResponse xmlns=\"urn:lab:stock\">\
            <item sku=\"a&quot;&quot;><b\"><qty>3</qty><available>true</available></item>\
            <item sku=\"c\"><qty>101</qty><available>false</available></item>\
            </CheckStockResponse></soap:Body></soap:Envelope>";
        for (namespace, content_type) in [
            (SOAP_11, "text/xml; charset=utf-8"),
            (SOAP_12, "application/soap+xml; charset=utf-8"),
        ] {
            let (reply, text) = ask(namespace, &request);
            assert_eq!((reply.status, reply.content_type), (200, content_type));
            let start = format!("<soap:Envelope xmlns:soap=\"{namespace}\">");
            assert_eq!(text, [start.as_str(), wanted].concat());
        }
        let (_, text) = ask(SOAP_11, "<CheckStock xmlns='urn:lab:stock'/>");
        assert!(
            text.contains("urn:lab:stock\"></CheckStockResponse>"),
            "{text}"
        );
    }

    #[test]
    fn texts_come_back() {
        let (reply, text) = ask(SOAP_11, "<s:Echo><s:text>a &lt; b</s:text></s:Echo>");
        assert_eq!(reply.status, 200);
        assert!(
            text.contains("<text>a &lt; b</text></EchoResponse>"),
            "{text}"
        );
    }

    #[test]
    fn faults_say_whose_they_are() {
        let fault = "<s:CheckStock><s:item sku=\"FAULT\"><s:qty>1</s:qty></s:item></s:CheckStock>";
        for (namespace, request, status, code) in [
            (SOAP_11, fault, 500, "<faultcode>soap:Server<"),
            (SOAP_12, fault, 500, "<soap:Value>soap:Receiver<"),
            (SOAP_11, "<s:Other/>", 500, "<faultcode>soap:Client<"),
            (SOAP_12, "<s:Other/>", 400, "<soap:Value>soap:Sender<"),
            (
                SOAP_11,
                "<s:CheckStock><s:item/></s:CheckStock>",
                500,
                "without a sku",
            ),
            (
                SOAP_11,
                "<s:CheckStock><s:item sku='a'/></s:CheckStock>",
                500,
                "without a qty",
            ),
            (SOAP_11, "", 500, "an empty body"),
        ] {
            let (reply, text) = ask(namespace, request);
            assert_eq!(reply.status, status, "{text}");
            assert!(
                text.contains(code) && text.ends_with("</soap:Envelope>"),
                "{text}"
            );
            assert_eq!(text.matches("<soap:Envelope").count(), 1);
            assert_eq!(
                text.contains("counted</reason></StockFault>"),
                request == fault
            );
        }
        let mut out = Vec::new();
        for body in [
            "",
            "<",
            "<e:Envelope",
            "<e:Envelope><e:Body><CheckStock><item sku='",
        ] {
            assert_eq!(answer(b"/", b"a", body.as_bytes(), &mut out).status, 500);
        }
    }

    #[test]
    fn the_description_has_the_address_that_was_asked() {
        let mut out = Vec::new();
        let reply = answer(b"/stock?WSDL", b"example:81", b"", &mut out);
        let text = String::from_utf8(out).unwrap();
        assert_eq!((reply.status, reply.reason()), (200, "OK"));
        assert_eq!(
            text.matches("location=\"http://example:81/stock\"").count(),
            2
        );
        assert!(!text.contains(ADDRESS));
        assert!(!asks_for_description(b"/wsdl"));
    }
}
