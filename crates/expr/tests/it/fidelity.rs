//! What jq does and an implementation of its own easily does otherwise. What is expected has been
//! taken from jq.

use expr::{Expression, Limits};

use super::support::{World, compiled, parsed};

fn all(code: &str, input: &str) -> String {
    let (results, outcome) =
        compiled(code).evaluate_all(&parsed(input), &World, &Limits::default());
    let mut shown: Vec<String> = results.iter().map(ToString::to_string).collect();
    shown.extend(outcome.err().map(|error| format!("! {error}")));
    shown.join(" ")
}

fn check(cases: &[(&str, &str, &str)]) {
    let wrong = cases.iter().filter_map(|(code, input, expected)| {
        let found = all(code, input);
        (found != *expected).then(|| format!("{code} of {input}: {found}, not {expected}"))
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn regular_expressions_know_all_letters() {
    check(&[
        (r#"gsub("\\W"; "")"#, r#""Müller-Ö""#, r#""MüllerÖ""#),
        (r#"[scan("\\w+")]"#, r#""Größe 5""#, r#"["Größe","5"]"#),
        (r#"test("É"; "i")"#, r#""é""#, "true"),
        (r#"test("^\\p{L}+$")"#, r#""жåß""#, "true"),
        (
            r#"[match("[[:alpha:]]+"; "g").string]"#,
            r#""aß1é""#,
            r#"["aß","é"]"#,
        ),
        (
            r#"[match("[[:^alnum:]]"; "g").string]"#,
            r#""a-é_1""#,
            r#"["-","_"]"#,
        ),
        (
            r#"[match("[[:punct:]]"; "g").string]"#,
            r#""$+<|~!_a""#,
            r#"["$","+","<","|","~","!","_"]"#,
        ),
        (r#"test("^\\d$")"#, r#""٣""#, "true"),
        (
            r#"[scan("\\b\\w+\\b")]"#,
            r#""für ünter a""#,
            r#"["für","ünter","a"]"#,
        ),
        (
            r#"gsub("\\bä"; "Ä")"#,
            r#""äpfel, näher, äh""#,
            r#""Äpfel, näher, Äh""#,
        ),
        (r#"gsub(""; "-")"#, r#""éx""#, r#""-é-x-""#),
        (r#"gsub("x*"; "-")"#, r#""axb""#, r#""-a--b-""#),
        (r#"[match(".")].[0].length"#, r#""é""#, "1"),
        (
            r#"test("a.b"; "s"), test("a.b"; "p"), test("a.b")"#,
            r#""a\nb""#,
            "false true false",
        ),
        (r#"test("\\<a[b[]&&]$")"#, r#""<ab&&]""#, "true"),
        (r#"test("{1"), test("a{b}")"#, r#""a{b}e{1""#, "true true"),
        (
            r#"test(["A", "i"]), test("a"; null), [match(["a"]).string]"#,
            r#""a""#,
            r#"true true ["a"]"#,
        ),
        (
            r#"[splits(", *"; null)]"#,
            r#""a, b,c""#,
            r#"["a","b","c"]"#,
        ),
    ]);
}

#[test]
fn groups_without_a_part_in_a_match_keep_their_places() {
    check(&[
        (
            r#"[match("(a)?(b)").captures[].string]"#,
            r#""b""#,
            r#"[null,"b"]"#,
        ),
        (
            r#"capture("(?<x>a)?(?<y>b)")"#,
            r#""b""#,
            r#"{"x":null,"y":"b"}"#,
        ),
        (
            r#"match("(a)?(?<n>t)").captures"#,
            r#""t""#,
            r#"[{"offset":-1,"length":0,"string":null,"name":null},{"offset":0,"length":1,"string":"t","name":"n"}]"#,
        ),
        (r#"[scan("(a)?(b)")]"#, r#""b""#, r#"[[null,"b"]]"#),
        (
            r#"[sub("(?<x>.)"; "\(.x)1", "\(.x)2")]"#,
            r#""abc""#,
            r#"["a1bc","a2bc"]"#,
        ),
        (
            r#"[gsub("(?<x>[ac])"; "1", "2")]"#,
            r#""abc""#,
            r#"["1b1","2b2"]"#,
        ),
        (r#"[gsub("b"; empty)]"#, r#""abc""#, r#"["abc"]"#),
    ]);
}

#[test]
fn regular_expressions_are_looked_at_when_a_flow_is_loaded() {
    for code in [
        r#"test("(")"#,
        r#"gsub("a++"; "")"#,
        r#"match("a"; "q")"#,
        r#"test("a"; "l")"#,
        r#"[scan("\\1(a)")]"#,
        r#"sub("(?=a)"; "")"#,
        r#"test("[[:nonsense:]]")"#,
        r#"split("["; "g")"#,
        r#"test("\\p{Nonsense}")"#,
    ] {
        let errors = Expression::compile(code, &World).unwrap_err();
        assert!(
            errors[0].message.contains("regex") || errors[0].message.contains("flag"),
            "{code}"
        );
    }
    // What looks like one of them need not be one.
    compiled(r#"def test($x): $x; test("(")"#);
    compiled(r#"split("(")"#);
}

#[test]
fn all_paths_are_deleted_as_they_were_before() {
    check(&[
        ("del(.[0,1])", "[1,2,3]", "[3]"),
        ("del(.[0], .[2])", "[1,2,3]", "[2]"),
        ("delpaths([[0],[1]])", "[1,2,3]", "[3]"),
        (r#"delpaths([["a","b","c"]])"#, "{}", "{}"),
        (
            r#"del(.a.b, .c, .d[1:], .d[-3])"#,
            r#"{"a":{"b":1},"c":2,"d":[1,2,3]}"#,
            r#"{"a":{},"d":[]}"#,
        ),
        ("del(.[] | select(. > 1))", "[3,1,2,0]", "[1,0]"),
        ("del(..)", "[1,[2]]", "null"),
        ("del(.[-1], .[9])", "[1,2]", "[1]"),
        ("del(.a)", "null", "null"),
        ("to_entries", r#"{"a":1}"#, r#"[{"key":"a","value":1}]"#),
    ]);
}

#[test]
fn products_come_in_the_order_of_jq() {
    check(&[
        ("[(1,2) + (10,20)]", "null", "[11,12,21,22]"),
        ("[(1,2) < (1,2)]", "null", "[false,false,true,false]"),
        (
            r#"["\(1,2)-\(3,4)"]"#,
            "null",
            r#"["1-3","2-3","1-4","2-4"]"#,
        ),
        (
            r#"[@html "\(1,2)\("<","3")x\(5,6)"]|length, .[1], .[2], .[4]"#,
            "null",
            r#"8 "2&lt;x5" "13x5" "1&lt;x6""#,
        ),
        ("[.[0,1][0,1]]", "[[1,2],[3,4]]", "[1,3,2,4]"),
        ("[.[(0,1):(1,2)]]", "[1,2,3]", "[[1],[1,2],[],[2]]"),
        (
            "[{a: (1,2), b: (3,4)}]",
            "null",
            r#"[{"a":1,"b":3},{"a":1,"b":4},{"a":2,"b":3},{"a":2,"b":4}]"#,
        ),
        ("[range(0,1; 3,4)]", "null", "[0,1,2,0,1,2,3,1,2,1,2,3]"),
    ]);
}

#[test]
fn a_fold_goes_on_with_the_last_result() {
    check(&[
        (
            "reduce (1,2,3) as $x (0; if $x == 2 then empty else . + $x end)",
            "null",
            "3",
        ),
        ("reduce range(3) as $x (5; empty)", "null", "null"),
        ("[reduce (1,2) as $x (0; . + $x, . * 2)]", "null", "[0]"),
        (
            "[foreach (1,2,3) as $x (0; if $x == 2 then empty else . + $x end)]",
            "null",
            "[1,3]",
        ),
        (
            "[foreach (1,2) as $x (0; . + $x, . + 10; [$x, .])]",
            "null",
            "[[1,1],[1,10],[2,12],[2,20]]",
        ),
        (
            "[foreach .[] as [$i, $j] (0; . + $i - $j)]",
            "[[2,1],[5,3],[6,4]]",
            "[1,3,5]",
        ),
    ]);
}

#[test]
fn arithmetic_is_that_of_jq() {
    check(&[
        ("5.5 % 2, -5.5 % 3, 5 % -2, 5 % 2.9", "null", "1 -2 1 1"),
        (
            "try (1 / 0) catch .",
            "null",
            r#""number (1) and number (0) cannot be divided because the divisor is zero""#,
        ),
        (
            "try (5 % 0.5) catch .",
            "null",
            r#""number (5) and number (0.5) cannot be divided (remainder) because the divisor is zero""#,
        ),
        (".[1e0], .[1.7]", "[1,2]", "2 2"),
        (".[1.2:3.5]", "[1,2,3,4,5]", "[2,3,4]"),
        (".[1:]", "null", "null"),
        (".[2] = 1", "[0]", "[0,null,1]"),
        (".a[1] = 1", "null", r#"{"a":[null,1]}"#),
        (".[1:] = [1]", "null", "[1]"),
    ]);
}

#[test]
fn what_was_missing_is_there() {
    check(&[
        (
            "[tostream]",
            r#"{"a":[1,2]}"#,
            r#"[[["a",0],1],[["a",1],2],[["a",1]],[["a"]]]"#,
        ),
        (
            "fromstream(tostream)",
            r#"{"a":[1,{"b":[]}]}"#,
            r#"{"a":[1,{"b":[]}]}"#,
        ),
        (
            "[1 | truncate_stream([[0],1],[[1,0],2],[[1,0]],[[1]])]",
            "null",
            "[[[0],2],[[0]]]",
        ),
        (
            r#"[JOIN({"1":"x"}; .[]; .id | tostring)]"#,
            r#"[{"id":1}]"#,
            r#"[[{"id":1},"x"]]"#,
        ),
        (
            "builtins | length > 150 and any(. == \"map/1\")",
            "null",
            "true",
        ),
        (
            "1 |\n$__loc__",
            "null",
            r#"{"file":"<top-level>","line":2}"#,
        ),
        (
            "{$__loc__}",
            "null",
            r#"{"__loc__":{"file":"<top-level>","line":1}}"#,
        ),
        (
            "from_entries",
            r#"[{"name":"a","value":1},{"Name":"b","Value":2},{"Key":"c"}]"#,
            r#"{"a":1,"b":2,"c":null}"#,
        ),
        (r#"trimstr("x"), toarray"#, r#""xax""#, r#""a" ["xax"]"#),
        (
            "@base32, (@base32 | @base32d)",
            r#""a>é""#,
            r#""ME7MHKI=" "a>é""#,
        ),
        (r#"format("base64")"#, r#""a""#, r#""YQ==""#),
        (r#"join(",")"#, r#"["a",null,1,true]"#, r#""a,,1,true""#),
        (
            r#"first(join(","))"#,
            r#"["a",null,1,true]"#,
            r#""a,,1,true""#,
        ),
    ]);
}
