//! Input that is made to be expensive. Each case does work in proportion to its size, or the test
//! would not end in any useful time.

use expr::convert::{JsonToXml, XmlToJson};

const SIZE: usize = 1 << 20;

fn json(text: &str) -> Result<usize, String> {
    let mut out = Vec::new();
    let result = JsonToXml::default().convert(text.as_bytes(), &mut out);
    result
        .map(|()| out.len())
        .map_err(|error| error.to_string())
}

fn xml(text: &str) -> Result<usize, String> {
    let mut out = Vec::new();
    let result = XmlToJson::default().convert(text.as_bytes(), &mut out);
    result
        .map(|()| out.len())
        .map_err(|error| error.to_string())
}

#[test]
fn late_attributes_at_every_level_are_put_in_once_each() {
    let inner = "\"x\":\"".to_owned() + &"y".repeat(SIZE / 2) + "\"";
    let depth = 120;
    let (open, close) = ("\"a\":{".repeat(depth), ",\"@l\":1}".repeat(depth));
    let text = format!("{{{open}{inner}{close}}}");
    assert!(json(&text).unwrap() > SIZE / 2);
    let many: Vec<String> = (0..50_000)
        .map(|at| format!("\"c{at}\":1,\"@a{at}\":2"))
        .collect();
    assert!(json(&format!("{{\"r\":{{{}}}}}", many.join(","))).unwrap() > SIZE / 2);
}

#[test]
fn depth_without_end_is_refused() {
    assert!(
        json(&"[".repeat(SIZE))
            .unwrap_err()
            .contains("too many levels")
    );
    assert!(
        json(&"{\"a\":".repeat(SIZE / 5))
            .unwrap_err()
            .contains("too many levels")
    );
    assert!(
        xml(&"<a>".repeat(SIZE / 3))
            .unwrap_err()
            .contains("too many levels")
    );
}

#[test]
fn many_prefixes_are_no_quadratic_work() {
    let many: Vec<String> = (0..50_000).map(|at| format!("\"p{at}:c\":1")).collect();
    assert!(json(&format!("{{\"r\":{{{}}}}}", many.join(","))).is_err());
    let declared: Vec<String> = (0..20_000)
        .map(|at| format!("\"p{at}:c\":1,\"@xmlns:p{at}\":\"u\""))
        .collect();
    assert!(json(&format!("{{\"r\":{{{}}}}}", declared.join(","))).is_ok());
}

#[test]
fn many_siblings_and_attributes_are_no_quadratic_work() {
    assert!(xml(&format!("<r>{}</r>", "<a/>".repeat(SIZE / 4))).unwrap() > SIZE);
    let distinct: String = (0..80_000).map(|at| format!("<e{at}/>")).collect();
    assert!(xml(&format!("<r>{distinct}</r>")).unwrap() > SIZE / 2);
    let attributes: String = (0..50_000).map(|at| format!(" a{at}=\"1\"")).collect();
    assert!(xml(&format!("<r{attributes}/>")).unwrap() > SIZE / 2);
}
