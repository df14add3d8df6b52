//! Documents, patches and what is refused.

use super::*;

mod random;
mod vectors;

fn document(text: &str) -> Document {
    Document::parse(text.as_bytes()).unwrap()
}

fn patch(before: &str, after: &str) -> String {
    match diff(&document(before), &document(after)) {
        Change::Patch(patch) => String::from_utf8(patch.to_vec()).unwrap(),
        other => format!("{other:?}"),
    }
}

/// A document of that many bytes more, so that it is not shorter than a patch.
fn long(text: &str) -> String {
    format!("{{\"pad\":\"{}\",\"v\":{text}}}", "x".repeat(400))
}

fn long_patch(before: &str, after: &str) -> String {
    patch(&long(before), &long(after)).replace("\"/v", "\"")
}

#[test]
fn text_is_made_compact_and_keeps_numbers_and_order() {
    let text = " { \"b\" : [ 1 , -2.50e+3 , true , null ] ,\r\n\t\"a\" : { } , \"c\\u0041\\/\\n\\u001f\\ud83d\\ude00\" : \"\\\"\" } ";
    let expected = "{\"b\":[1,-2.50e+3,true,null],\"a\":{},\"cA/\\n\\u001f😀\":\"\\\"\"}";
    let document = document(text);
    assert_eq!(document.text(), expected);
    assert_eq!(document.root().size(), 11);
    for scalar in ["1", "\"a\"", "null", "[]", "{}"] {
        assert_eq!(self::document(scalar).text(), scalar);
    }
}

#[test]
fn what_is_not_json_is_refused_with_its_place() {
    let error = |text: &[u8]| Document::parse(text).unwrap_err().to_string();
    let cases: [(&str, &str); 15] = [
        (
            "",
            "the text ends where a value was expected at line 1, column 1",
        ),
        ("{\n \"a\" 1}", "`:` was expected at line 2, column 6"),
        ("[1,]", "a value was expected at line 1, column 4"),
        ("[1 2]", "`,` or `]` was expected at line 1, column 4"),
        ("{\"a\":1]", "`,` or `}` was expected at line 1, column 7"),
        (
            "{1:2}",
            "the name of a member was expected at line 1, column 2",
        ),
        (
            "{\"a\":1,}",
            "the name of a member was expected at line 1, column 8",
        ),
        ("01", "more text behind the value at line 1, column 2"),
        ("1.", "a digit was expected at line 1, column 3"),
        ("NaN", "a value was expected at line 1, column 1"),
        ("[Infinity]", "a value was expected at line 1, column 2"),
        (
            "\"\u{1}\"",
            "a control character in a string at line 1, column 2",
        ),
        ("\"é", "the string has no end at line 1, column 3"),
        (
            "\"\\ud800\"",
            "half of a surrogate pair at line 1, column 2",
        ),
        ("[1] // x", "more text behind the value at line 1, column 5"),
    ];
    for (text, expected) in cases {
        assert_eq!(error(text.as_bytes()), expected, "{text}");
    }
    assert_eq!(
        error(b"\"\xff\""),
        "the text is not UTF-8 at line 1, column 2"
    );
    let nested = |levels| [vec![b'['; levels], vec![b']'; levels]].concat();
    assert!(Document::parse(&nested(DEPTH_MAX)).is_ok());
    assert!(error(&nested(DEPTH_MAX + 1)).starts_with("too many levels"));
}

#[test]
fn two_members_of_one_name_are_refused() {
    let twice = "an object with two members of one name";
    let error = |text: &str| Document::parse(text.as_bytes()).unwrap_err();
    assert_eq!(error("{\"a\":{},\"a\":1}").message, twice);
    assert_eq!(error("[{\"a\":1,\"\\u0061\":1}]").message, twice);
    let many = |last: usize| {
        let names = (0..50).chain([last]).map(|it| format!("\"n{it}\":[{{}}]"));
        format!("{{{}}}", names.collect::<Vec<_>>().join(","))
    };
    assert!(Document::parse(many(50).as_bytes()).is_ok());
    for last in [0, 11, 12, 49] {
        assert_eq!(error(&many(last)).message, twice, "{last}");
    }
}

#[test]
fn the_order_of_members_is_no_change_and_the_spelling_of_numbers_is() {
    let same = |left: &str, right: &str| document(left).is_same(&document(right));
    assert!(same(
        "{\"a\":1,\"b\":[{\"c\":1,\"d\":2}]}",
        "{\"b\":[{\"d\":2,\"c\":1}],\"a\":1}"
    ));
    assert!(same("\"\\u00e9\"", "\"é\""));
    for (left, right) in [
        ("1", "1.0"),
        ("0", "-0"),
        ("{\"a\":1}", "{\"a\":1,\"b\":1}"),
        ("{\"a\":1}", "{\"b\":1}"),
        ("[1]", "[1,1]"),
        ("[]", "{}"),
        ("1", "\"1\""),
    ] {
        assert!(!same(left, right), "{left} {right}");
        assert!(!same(right, left), "{left} {right}");
    }
    assert_eq!(patch("{\"a\":1,\"b\":2}", " {\"b\":2, \"a\":1}"), "Nothing");
}

#[test]
fn members_are_added_removed_and_replaced() {
    let cases = [
        (
            "{\"a\":1}",
            "{\"a\":2}",
            "[{\"op\":\"replace\",\"path\":\"/a\",\"value\":2}]",
        ),
        (
            "{\"a\":1,\"b\":2}",
            "{\"b\":2}",
            "[{\"op\":\"remove\",\"path\":\"/a\"}]",
        ),
        (
            "{}",
            "{\"a/b~c\":[1]}",
            "[{\"op\":\"add\",\"path\":\"/a~1b~0c\",\"value\":[1]}]",
        ),
        (
            "{\"x\":{\"y\":null}}",
            "{\"x\":{\"y\":{}}}",
            "[{\"op\":\"replace\",\"path\":\"/x/y\",\"value\":{}}]",
        ),
    ];
    for (before, after, expected) in cases {
        assert_eq!(long_patch(before, after), expected);
    }
}

#[test]
fn items_that_stay_are_left_alone() {
    let cases = [
        (
            "[1,2,3]",
            "[1,9,2,3]",
            "[{\"op\":\"add\",\"path\":\"/1\",\"value\":9}]",
        ),
        ("[1,2,3]", "[1,3]", "[{\"op\":\"remove\",\"path\":\"/1\"}]"),
        (
            "[1,2,3]",
            "[1,2,3,4]",
            "[{\"op\":\"add\",\"path\":\"/3\",\"value\":4}]",
        ),
        (
            "[1,2,3,4,5]",
            "[0,1,3,4,9]",
            "[{\"op\":\"add\",\"path\":\"/0\",\"value\":0},{\"op\":\"remove\",\"path\":\"/2\"},\
             {\"op\":\"replace\",\"path\":\"/4\",\"value\":9}]",
        ),
        // An item that has changed beside one that is new.
        (
            "[{\"id\":1,\"p\":1},{\"id\":2,\"p\":1},{\"id\":3,\"p\":1}]",
            "[{\"id\":9,\"p\":1},{\"id\":1,\"p\":2},{\"id\":2,\"p\":3},{\"id\":3,\"p\":4}]",
            "[{\"op\":\"add\",\"path\":\"/0\",\"value\":{\"id\":9,\"p\":1}},\
             {\"op\":\"replace\",\"path\":\"/1/p\",\"value\":2},\
             {\"op\":\"replace\",\"path\":\"/2/p\",\"value\":3},\
             {\"op\":\"replace\",\"path\":\"/3/p\",\"value\":4}]",
        ),
    ];
    for (before, after, expected) in cases {
        assert_eq!(long_patch(before, after), expected);
    }
}

#[test]
fn a_document_that_is_shorter_than_its_patch_is_sent_whole() {
    assert_eq!(
        diff(&document("{\"a\":1}"), &document("{\"a\":2}")),
        Change::Whole
    );
    assert_eq!(diff(&document("[1]"), &document("{}")), Change::Whole);
    assert_eq!(diff(&document("1"), &document("2")), Change::Whole);
}

#[test]
fn lists_that_differ_throughout_cost_a_bounded_time() {
    let list = |from: usize| {
        let items = (0..20_000).map(|it| (it * from % 19_997).to_string());
        format!("[{}]", items.collect::<Vec<_>>().join(","))
    };
    assert_eq!(
        diff(&document(&list(7)), &document(&list(11))),
        Change::Whole
    );
    let (before, after) = (list(1), format!("[{},5]", list(1)));
    assert_eq!(diff(&document(&before), &document(&after)), Change::Whole);
}

#[test]
fn what_a_patch_makes_is_bounded() {
    let copies: Vec<String> = (0..64)
        .map(|it| format!("{{\"op\":\"copy\",\"from\":\"\",\"path\":\"/a{it}\"}}"))
        .collect();
    let patch = format!("[{}]", copies.join(","));
    let applied = apply(&document("{\"x\":[1,2,3]}"), patch.as_bytes(), 1 << 20);
    assert!(matches!(applied, Err(PatchError::Misfit(_))), "{applied:?}");
    let add = "[{\"op\":\"add\",\"path\":\"/-\",\"value\":\"long text\"}]";
    let applied = apply(&document("[]"), add.as_bytes(), 5);
    assert_eq!(applied.unwrap_err(), PatchError::TooLarge(5));
}
