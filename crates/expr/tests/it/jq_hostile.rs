//! Expressions that are made to run for ever, to fill the memory or to overflow the stack. Each
//! must end soon, with a result or an error.

use std::time::{Duration, Instant};

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use expr::jq::{rounds, stoppable};
use expr::{EvalErrorKind, Expression, Limits, Value};

use super::support::{World, evaluated, parsed};

/// A value that is small and looks like 2^40 nodes.
const BOMB: &str = "reduce range(40) as $i (1; [., .])";
const BOMB_OBJECT: &str = "reduce range(40) as $i ({\"a\": 1}; {a: ., b: .})";
const DEEP: &str = "reduce range(1000000) as $i (0; [.])";
const LONG: &str = "(\"x\" * 5000000)";

/// These must pass a limit.
const ENDLESS: &[&str] = &[
    "last(repeat(1))",
    "def f: f; f",
    "def f: 1 + f; f",
    "def f: [f]; f",
    "def f: {a: f}; f",
    "def f: f, 1; last(f)",
    "def f: 1, f; last(f)",
    "def f: f | f; f",
    "def f: try f catch f; f",
    "def f: try error catch f; f",
    "def f: (try f catch .), f, f; last(f)",
    "def f(g): f(g | g); f(.)",
    "def f($a): f($a + 1); f(0)",
    "def f(g): g | f(g); f(.)",
    "def f(g): def h(i): f(i | i); h(g | g); f(.)",
    "def f(g; $a): if $a > 5000 then g else f(g | g; $a + 1) end; f(.; 0) | last(repeat(.))",
    "def f: def g: f; g; f",
    "def f: f?; [f]",
    "def f: f // f; f",
    "def f: if f then 1 else 2 end; f",
    "def f: f as $x | $x; f",
    "def f: reduce f as $x (0; 1); f",
    "def f: label $l | f; f",
    "def f: \"\\(f)\"; f",
    "[range(1e12)]",
    "[range(1000000000000)]",
    "last(range(0; infinite))",
    "last(range(0; 1; 0))",
    "last(range(1e18))",
    "\"x\" * 10000000000",
    "\"xxxxxxxxxx\" * 99999999999999999999",
    "reduce range(60) as $i (\"x\"; . + .)",
    "reduce range(60) as $i ([1]; . + .)",
    "reduce range(60) as $i (\"x\"; . * 2)",
    "reduce range(60) as $i (\"x\"; \"\\(.)\\(.)\")",
    "reduce range(60) as $i (\"x\"; [., .] | join(\"\"))",
    "reduce range(60) as $i (\"x\"; [., .] | add)",
    "reduce range(60) as $i (\"x\"; [., .] | tojson)",
    "reduce range(60) as $i (\"\\\"\"; tojson)",
    "reduce range(400) as $i (\"x\"; @base64)",
    "reduce range(60) as $i (\"'\"; @sh)",
    "reduce range(1000000) as $i (0; [.])",
    "reduce range(1000000) as $i (0; {a: .})",
    "reduce range(1000000) as $i (0; setpath([]; [.]))",
    "reduce range(1000000) as $i ([0]; .[0] = .)",
    "limit(1000000000; repeat(.)) | select(false)",
    "[limit(1000000000; repeat(.))]",
    "[limit(1e300; repeat(.))]",
    "first(repeat(1) | select(. > 1))",
    "until(false; .)",
    "last(while(true; .))",
    "last(recurse(.))",
    "[recurse([.])]",
    "any(repeat(false); .)",
    "all(repeat(true); .)",
    "isempty(repeat(empty))",
    "[range(1000)] | [combinations(9)] | length",
    "[[range(1000)] | ., ., ., .] | last(combinations)",
    "[range(3000)] | last(.[] as $a | .[] as $b | .[] as $c | 1)",
    "last((0, 0) | (., .) | (., .) | (., .) | (., .) | (., .) | (., .) | (., .) | (., .) | (., .) \
      | (., .) | (., .) | (., .) | (., .) | (., .) | (., .) | (., .) | (., .) | (., .) | (., .) \
      | (., .) | (., .) | (., .) | (., .) | (., .) | (., .) | (., .) | (., .) | (., .) | (., .))",
    "last({a:(1,2),b:(1,2),c:(1,2),d:(1,2),e:(1,2),f:(1,2),g:(1,2),h:(1,2),i:(1,2),j:(1,2),\
      k:(1,2),l:(1,2),m:(1,2),n:(1,2),o:(1,2),p:(1,2),q:(1,2),r:(1,2),s:(1,2),t:(1,2),u:(1,2)})",
    "reduce range(40) as $i (3; . * .)",
    "reduce range(1e9) as $i (3; . * 3)",
    "last(foreach repeat(1) as $i (0; . + $i))",
    "label $out | repeat(1) | if . > 1 then break $out else empty end",
    "(reduce range(1000000) as $i (.; .)) |= 1 | last(repeat(1))",
    "[range(200000)] | [.[] | .] * 1000",
    "[limit(100000; repeat(\"abc\" * 1000))] | length",
    "last(range(1000000) | tojson | fromjson)",
    "[paths] | last(repeat(.))",
    "last(getpath([range(5000000)]))",
];

/// What is done to values that look endless, or are as long as they may be.
const BOMB_USES: &[&str] = &[
    ". == (. | .)",
    "[., .] | .[0] == .[1]",
    ". < .",
    "[., ., .] | sort",
    "[., .] | unique",
    "[., .] | group_by(.)",
    "[., .] | min",
    "[., .] | max_by(.)",
    "tojson",
    "tostring",
    "@json",
    "@text",
    "@html",
    "@sh",
    "@base64",
    "@uri",
    "\"\\(.)\"",
    "walk(.)",
    "[paths] | length",
    "[..] | length",
    "flatten",
    "[leaf_paths] | length",
    "contains(.)",
    "inside(.)",
    "index(.)",
    "[., .] | index(1)",
    "[.] - [.]",
    "tojson | fromjson",
    "map_values(.) | .. |= .",
    "[.. | numbers] | add",
    "to_entries | tojson",
    "[getpath([0, 0, 0, 0]), .] | tojson",
    "error",
    "error(.)",
    "try error catch tojson",
    "{(tojson): 1}",
    "{(.): 1}",
    "has(.)",
    ".[.]?",
    "ltrimstr(.)",
    "startswith(tojson)",
    "[., .] | bsearch(.)",
    "[limit(5; ..)] | tojson",
    "[tobytes]",
    "tobytes",
    "implode",
    "transpose",
    "with_entries(.)",
    "del(..)",
    "[splits(.)]",
    "test(tojson)",
    "ascii_downcase",
    "join(\",\")",
    "[.[]] | join(\",\")",
    "@csv",
    "@tsv",
    ". * .",
    ". + . | tojson",
    "length",
    "keys",
    "any",
    "all",
    "combinations",
    "[combinations] | length",
    ".",
];

const ODD: &[&str] = &[
    "\"x\" * 1e300",
    "reduce range(60) as $i (\"%\"; @uri)",
    "reduce range(60) as $i (\"<\"; @html)",
    "last(recurse(. + 1))",
    "[splits(\"x\")] | length | last(repeat(.))",
    "last([1] | .[(0,0)]?[(0,0)]?[(0,0)]?[(0,0)]?[(0,0)]?[(0,0)]?[(0,0)]?[(0,0)]?[(0,0)]?[(0,0)]?\
      [(0,0)]?[(0,0)]?[(0,0)]?[(0,0)]?[(0,0)]?[(0,0)]?[(0,0)]?[(0,0)]?[(0,0)]?[(0,0)]?[(0,0)]?\
      [(0,0)]?[(0,0)]?[(0,0)]?[(0,0)]?[(0,0)]?[(0,0)]?[(0,0)]?[(0,0)]?[(0,0)]?[(0,0)]?[(0,0)]?, 1)",
    "limit(0; 1)",
    "first(empty)",
    "error(null)",
    "try error(null) catch .",
    "error",
    "[] | first",
    "1e1000",
    "-1e1000",
    "pow(10; 1000000000)",
    "1e1000 * 1e1000",
    "[nan] | sort",
    "nan < nan",
    "[range(100) | if . % 3 == 0 then nan else . end] | sort | length",
    "nan",
    "infinite",
    "-infinite",
    "[range(500) | if . % 7 == 0 then nan else -. end] | unique | length",
    "[nan, nan] | unique",
    "\"[\" * 100000 | fromjson",
    "\"{\\\"a\\\":\" * 100000 | fromjson",
    "\"1\" * 300000 | tonumber",
    "\"1\" * 300000 | tonumber + 1",
    "\"9\" * 900 | tonumber | . * . | tostring | length",
    "\"9\" * 999 | tonumber | . % 7",
    "9223372036854775807 + 1",
    "-9223372036854775808 % -1",
    "1 % 0",
    "1 / 0",
    "0 / 0",
    "5 % 0.0",
    "[1,2] | .[1e300]",
    "[1,2] | .[-1e18]",
    "[1,2] | .[99999999999999999999]",
    "[1,2] | .[-99999999999999999999:99999999999999999999]",
    "\"abc\" | .[9223372036854775807:-9223372036854775808]",
    "[1] | .[1:0] = [2, 3]",
    "null | setpath([range(100000)]; 1)",
    "[1] | setpath([5000000]; 1)",
    "[] | .[1000000000] = 1",
    "0 | strftime(\"%1000000000Y\")",
    "0 | strftime(\"%99999999999999999999d\")",
    "1e300 | todate",
    "-1e18 | todate",
    "0 | strftime(\"%Q%z%Z%s%f%9f%.9f%+%c%E%\")",
    "\"x\" | strptime(\"%\")",
    "\"2020\" | strptime(\"%Y\")",
    "[1,2,3] | mktime",
    "[1e300,0,0,0,0,0] | mktime",
    "[2020, 5, 1, 1e9, 1e9, 1e300] | mktime",
    "infinite | gmtime",
    "nan | todate",
    "\"\" | fromdate",
    "\"9999-99-99T99:99:99Z\" | fromdate",
    "[1114112] | implode",
    "[-1] | implode",
    "[1e9] | implode",
    "[55296] | implode",
    "[range(-500; 500)] | implode",
    "\"aaa\" | test(\"(a*)*b\")",
    "(\"a\" * 50000) | test(\"(a|a)*b\")",
    "(\"a\" * 50000) | [match(\"a*?b|a\"; \"g\")] | length",
    "\"a\" | test(\"((((a{100}){100}){100}){100})\")",
    "\"a\" | test(\"(\" * 10000)",
    "\"a\" | test(\"\\\\w{1000}{1000}\")",
    "(\"x\" * 100000) | gsub(\"\"; \"yyyyyyyyyyyyyyyyyyyyyyyyy\")",
    "(\"x\" * 100000) | gsub(\"x\"; \"yyyyyyyyyy\") | length",
    "(\"x\" * 200000) | [splits(\"\")] | length",
    "(\"a,\" * 200000) | split(\",\") | length",
    "(\"a,\" * 200000) | [splits(\",\")] | length",
    "(\"ab\" * 200000) | explode | implode | length",
    "(\"ab\" * 200000) | explode | add",
    "[range(300000)] | map(tostring) | join(\"-\") | length",
    "[range(50000)] | sort_by(-.) | .[0]",
    "[range(100000)] | group_by(. % 10) | length",
    "[range(50000)] - [range(0; 50000; 2)] | length",
    "[range(50000)] | index(49999)",
    "[range(50000)] | [limit(3; .[])]",
    "[range(100000)] | .[50000:] | length",
    "reduce range(50000) as $i ({}; .[$i | tostring] = $i) | length",
    "reduce range(100000) as $i ([]; . + [$i]) | length",
    "reduce range(100000) as $i (\"\"; . + \"x\") | length",
    "[range(10000)] | reduce .[] as $x (0; . + $x)",
    "[limit(10; repeat(1))] | add",
    "[range(0; 10; 3)]",
    "ldexp(1; 2000000000)",
    "scalb(1; 1e308)",
    "gamma",
    "1e308 | exp10",
    "[splits(\"a\"; null)]",
    "ltrimstr(1)",
    "tojson",
    "$__loc__?",
    "frexp",
    "1e1000 | frexp",
    "nearbyint",
    "significand",
    "logb",
    "drem(1; 0)",
    "getpath([\"a\", \"b\"])",
    "try (def f: 1 + f; f) catch .",
    "(try error(\"x\") catch .) as $x | $x",
    "label $a | 1, break $a, 2",
    "[.[]?]",
    ".[]?",
    "..",
    "-.",
    "-(1)",
    "{} | .a.b.c",
    "{} | .[\"a\"][\"b\"]",
    "@json \"x\\(1)\"",
    "\"\\u0000\"",
    "splits(\"a\")",
    "ascii",
    "@text",
    "implode",
    "ltrimstr(\"a\")",
    "tojson | fromjson",
    "input_line_number?",
    "[range(5)] | .[2:4] = []",
    "[range(5)] | del(.[1, 3])",
    "to_entries",
    "env?",
];

fn run(code: &str) -> Option<Result<Value, EvalErrorKind>> {
    run_within(code, &Limits::default())
}

fn run_within(code: &str, limits: &Limits) -> Option<Result<Value, EvalErrorKind>> {
    let start = Instant::now();
    let expression = Expression::compile(code, &World).ok()?;
    let result = expression.evaluate(&parsed("[1,{\"a\":[2]}]"), &World, limits);
    let message = result.as_ref().err().map(|error| error.message.clone());
    let took = start.elapsed();
    if std::env::var_os("SHOW").is_some() {
        let shown: String = code.chars().take(70).collect();
        let memory = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let memory = memory
            .lines()
            .find(|it| it.starts_with("VmHWM"))
            .unwrap_or_default();
        println!("{took:>12.1?} {memory} {shown} {message:?}");
    }
    assert!(
        message.is_none_or(|it| it.chars().count() < 1500),
        "{code}: a long message"
    );
    Some(result.map_err(|error| error.kind))
}

#[test]
fn what_has_no_end_passes_a_limit() {
    let budget = Some(Err(EvalErrorKind::Budget));
    let others = ENDLESS.iter().filter(|code| run(code) != budget);
    assert_eq!(others.collect::<Vec<_>>(), Vec::<&&str>::new());
}

/// A name may stand in a document for each entry of a list, and a row has a field for each column
/// of the first: what is written counts, and not only what is read.
#[test]
fn documents_of_a_value_are_paid_for_before_they_are_written() {
    let limits = Limits {
        steps: u64::MAX,
        memory: 8 << 20,
        ..Limits::default()
    };
    let list = "{(\"n\" * 5000): [range(2000)]}";
    let rows = "[([range(1000) | {key: \"c\\(.)\", value: 1}] | from_entries), \
                (range(10000) | {})]";
    for code in [
        format!("{list} | toxml | length"),
        format!("{list} | toform | length"),
        format!("{rows} | tocsv | length"),
        // Nor one after the other, or one within the other.
        "[limit(200; repeat({a: (\"x\" * 50000)} | toxml))] | length".to_owned(),
        "reduce range(40) as $i (\"&\"; {a: ., b: .} | toxml)".to_owned(),
        "reduce range(40) as $i (\"%\"; {a: ., b: .} | toform)".to_owned(),
        "reduce range(40) as $i (\"\\\"\"; [[., .]] | tocsv)".to_owned(),
    ] {
        let error = evaluated(&code, &Value::Null, &limits).unwrap_err();
        assert_eq!(error.message, "needs too much memory", "{code}");
        assert_eq!(error.kind, EvalErrorKind::Budget, "{code}");
    }
    let short = "{a: [range(1000)]} | [toxml, toform, ([.a] | tocsv)] | map(length)";
    let lengths = evaluated(short, &Value::Null, &limits).unwrap();
    assert_eq!(lengths, parsed("[9903,5889,3891]"));
}

/// What ends by time alone must end, whatever it does: there are steps for hours, and memory.
#[test]
fn what_has_no_end_passes_the_limit_of_time() {
    let limits = || Limits {
        steps: u64::MAX,
        memory: 1 << 28,
        until: Some(Instant::now() + Duration::from_millis(20)),
        ..Limits::default()
    };
    let budget = Some(Err(EvalErrorKind::Budget));
    let others = ENDLESS
        .iter()
        .filter(|code| run_within(code, &limits()) != budget);
    assert_eq!(others.collect::<Vec<_>>(), Vec::<&&str>::new());
    let late = |code| {
        let expression = Expression::compile(code, &World).unwrap();
        let error = expression
            .evaluate(&parsed("[1]"), &World, &limits())
            .unwrap_err();
        assert_eq!(error.message, "takes too long", "{code}");
    };
    LATE.iter().for_each(|code| late(code));
}

/// What nobody waits for any more ends, although it has no deadline.
#[test]
fn an_evaluation_ends_when_its_flag_is_set() {
    let limits = Limits {
        steps: u64::MAX,
        ..Limits::default()
    };
    let stop = Arc::new(AtomicBool::new(true));
    for code in LATE {
        let expression = Expression::compile(code, &World).unwrap();
        let evaluate = || expression.evaluate(&parsed("[1]"), &World, &limits);
        let error = stoppable(&stop, evaluate).unwrap_err();
        assert_eq!(error.message, "takes too long", "{code}");
    }
    // The flag holds for that work alone.
    let short = Expression::compile("last(range(10000))", &World).unwrap();
    assert!(short.evaluate(&parsed("[1]"), &World, &limits).is_ok());
}

/// On a thread on which others wait no evaluation takes more than its time slice, in steps as in
/// time, and those behind a long one have one round each.
#[test]
fn an_evaluation_at_one_go_ends_with_its_time_slice() {
    let limits = Limits {
        steps: u64::MAX,
        memory: 1 << 28,
        at_once: true,
        ..Limits::default()
    };
    for code in ENDLESS.iter().chain(LATE) {
        let before = rounds();
        let result = run_within(code, &limits);
        let done = rounds() - before;
        assert!(done <= TURN_ROUNDS, "{code}: {done} rounds");
        let kinds = [EvalErrorKind::Unfinished, EvalErrorKind::Budget];
        let ended = result.is_some_and(|it| it.is_err_and(|kind| kinds.contains(&kind)));
        assert!(ended, "{code}");
    }
    let long = Expression::compile("last(range(1e18))", &World).unwrap();
    let unfinished = || {
        let error = long.evaluate(&Value::Null, &World, &limits).unwrap_err();
        assert_eq!(error.kind, EvalErrorKind::Unfinished);
    };
    // Where the machine is busy they may come too late to be behind it.
    let are_short = (0..50).any(|_| {
        unfinished();
        let before = rounds();
        (0..10).for_each(|_| unfinished());
        rounds() - before == 10
    });
    assert!(are_short);
    // What is short is done, and a limit of its own stays one.
    let short = Expression::compile("last(range(100))", &World).unwrap();
    assert!(short.evaluate(&Value::Null, &World, &limits).is_ok());
    let few = Limits {
        steps: 500,
        ..limits
    };
    let error = long.evaluate(&Value::Null, &World, &few).unwrap_err();
    assert_eq!(error.kind, EvalErrorKind::Budget);
}

/// What comes later than right behind a whole time slice has a whole one, too, and so has what
/// comes behind an evaluation that was refused before it took anything.
#[test]
fn short_time_slices_are_soon_over() {
    let limits = Limits {
        steps: u64::MAX,
        memory: 1 << 28,
        at_once: true,
        ..Limits::default()
    };
    let evaluate = |code: &str| {
        let expression = Expression::compile(code, &World).unwrap();
        expression.evaluate(&Value::Null, &World, &limits)
    };
    // It has more than one round. A busy machine may make it longer than a time slice now and then.
    let medium = || evaluate("last(range(2000))").is_ok();
    let unfinished = |code: &str| {
        let error = evaluate(code).unwrap_err();
        assert_eq!(error.kind, EvalErrorKind::Unfinished, "{code}");
    };
    unfinished("last(range(1e18))");
    let pause = Duration::from_millis(60);
    assert!((0..20).any(|_| {
        std::thread::sleep(pause);
        medium()
    }));
    // It would simulate the pattern over the whole text.
    let refused = "(\"ä\" * 800000) | test(\"\\\\b(x|y)\")";
    assert!((0..20).any(|_| {
        std::thread::sleep(pause);
        unfinished(refused);
        medium()
    }));
}

/// 200,000 steps and what one count may add.
const TURN_ROUNDS: u64 = 200;

/// These need neither memory nor the stack for long.
const LATE: &[&str] = &[
    "last(range(1e18))",
    "until(false; .)",
    "def f: f; f",
    "first(repeat(1) | select(. > 1))",
    "reduce range(1e18) as $i (0; . + 1)",
    "reduce range(1e18) as $i (0; empty)",
    "last(foreach range(1e18) as $i (0; ., 1))",
    "last((1, 2) + range(1e18))",
    "last(range(1e18) | tojson | test(\"(1|2)*3\"))",
    "last(range(1e18) | [., .] | del(.[0, 1]))",
    "(\"ab\" * 100000) as $x | last(range(1e18) | $x | test(\"(a|b)*c\"))",
    "(\"ab\" * 1000) as $x | last(range(1e18) | $x | gsub(\"a\"; \"x\") | length)",
    "(\"äb\" * 1000) as $x | last(range(1e18) | $x | gsub(\"\\\\bb\"; \"x\") | length)",
];

/// Regular expressions and texts for which a search takes long.
#[test]
fn searches_pass_a_limit() {
    let long = "(\"ab\" * 400000)";
    for (pattern, flags) in [
        (".*.*.*=", "g"),
        ("(a|b|ab)*c", "g"),
        ("(.*)*x", "g"),
        ("[ab]*a[ab]{18}c", "g"),
        ("([ab]*)*([ab]*)*([ab]*)*c", "g"),
        ("a*?c|a", "g"),
        ("a|[ab]*c", "g"),
        ("\\\\b(a|ab|b)*?c|a", "g"),
        ("(?i)(\\\\w|é)*=", "g"),
        ("(\\\\w{1,20}\\\\W?){1,20}=", "g"),
        ("((a?){50}){50}c", "g"),
    ] {
        for text in [
            long.to_owned(),
            format!("({long} + \"ä\")"),
            "(\"ä\" * 200000)".to_owned(),
        ] {
            for use_of in ["test", "[match]", "gsub"] {
                let call = match use_of {
                    "test" => format!("test(\"{pattern}\"; \"{flags}\")"),
                    "gsub" => format!("gsub(\"{pattern}\"; \"x\") | length"),
                    _ => format!("[match(\"{pattern}\"; \"{flags}\")] | length"),
                };
                run(&format!("{text} | {call}"));
            }
        }
    }
    // Patterns that come with a message.
    for pattern in [
        "\"\\\\pL\" * 5000",
        "\"(?i)\" + \"\\\\pL\" * 5000",
        "\"\\\\pL{400}{400}\"",
        "\"[a-z&&[^b]]\" * 3000",
        "\"(\" * 5000 + \")\" * 5000",
        "\"(x*)*\" * 3000",
        "[range(30000) | tostring] | join(\"|\")",
        "\"a{1000}{1000}\"",
    ] {
        run(&format!("({pattern}) as $p | \"a\" | test($p)"));
        run(&format!(
            "({pattern}) as $p | \"a\" | [range(100) as $i | test($p + ($i | tostring))]"
        ));
    }
}

#[test]
fn values_that_share_their_parts_are_no_way_around_the_limits() {
    let limits = Limits {
        steps: 100_000,
        ..Limits::default()
    };
    for value in [BOMB, BOMB_OBJECT, DEEP, LONG] {
        for usage in BOMB_USES {
            run_within(&format!("{value} | {usage}"), &limits);
            run_within(&format!("{value} | try ({usage}) catch 1"), &limits);
        }
    }
}

#[test]
fn odd_expressions_end() {
    for code in ODD {
        run(code);
        run(&format!("[{code}]"));
        run(&format!("try ({code}) catch ."));
    }
}

#[test]
fn code_that_nests_is_refused_or_works() {
    let depth = 30_000;
    for (open, middle, close) in [
        ("[", "1", "]"),
        ("(", "1", ")"),
        ("{a:", "1", "}"),
        ("-", "1", ""),
        ("1+", "1", ""),
        ("1|", "1", ""),
        ("try ", "1", ""),
        ("if 1 then ", "1", " end"),
        (".a as $x|", "1", ""),
        ("def f: ", "1", "; f"),
        ("label $x|", "1", ""),
        ("\"\\(", "1", ")\""),
        (".[", "1", "]"),
        ("1//", "1", ""),
        ("1,", "1", ""),
        ("reduce ", ".", " as $x (0;1)"),
        (".a", "", ""),
        ("f(", "1", ")"),
        (". as [", "$a", "] | 1"),
        ("if 1 then 1 el", "", ""),
        ("{a:1,", "", "}"),
    ] {
        for depth in [10, 100, 900, 3000, depth] {
            let code = open.repeat(depth) + middle + &close.repeat(depth);
            run(&code);
        }
    }
    assert!(run(&("[".repeat(150) + "1" + &"]".repeat(150))).is_some());
    let members: Vec<String> = (0..1500).map(|at| format!("m{at}: .[{at}]")).collect();
    assert!(matches!(
        run(&format!("{{{}}}", members.join(", "))),
        Some(Ok(_))
    ));
    let sum = vec![".[0]"; 150].join(" + ");
    assert!(matches!(run(&sum), Some(Ok(_))));
}

#[test]
fn a_limit_of_the_caller_holds() {
    let input = parsed("[1,2,3]");
    let few = Limits {
        steps: 10,
        ..Limits::default()
    };
    let error = evaluated("[.[] | . + 1] | [.[] | . + 1] | sort_by(.)", &input, &few).unwrap_err();
    assert_eq!(error.kind, EvalErrorKind::Budget);
    let flat = Limits {
        depth: 1,
        ..Limits::default()
    };
    assert_eq!(evaluated("first(.)", &input, &flat).unwrap(), input);
    let error = evaluated("first([.])", &input, &flat).unwrap_err();
    assert_eq!(error.kind, EvalErrorKind::NotJson);
}

#[test]
fn steps_are_counted_whichever_way_an_expression_runs_and_ends() {
    let input = parsed("{\"a\":[1,2,3]}");
    let limits = Limits {
        steps: 5_000,
        ..Limits::default()
    };
    let counted = |code: &str| {
        let expression = Expression::compile(code, &World).unwrap();
        let (result, steps) = expression.evaluate_counted(&input, &World, &limits);
        (result.map_err(|error| error.kind), steps)
    };
    assert_eq!(counted("17"), (Ok(parsed("17")), 0));
    let (result, few) = counted("[range(100)] | length");
    assert_eq!(result, Ok(parsed("100")));
    let (_, more) = counted("[range(1000)] | length");
    assert!(few >= 100 && more >= 10 * (few - 50), "{few} {more}");
    let (result, all) = counted("[range(100000)] | length");
    assert_eq!(result, Err(EvalErrorKind::Budget));
    assert!((4_900..=5_000).contains(&all), "{all}");
    let (result, some) = counted("[range(100)] | error");
    assert!(result.is_err() && some >= 100, "{some}");
    // One evaluation leaves nothing to the next.
    assert_eq!(counted("[range(100)] | length").1, few);
}
