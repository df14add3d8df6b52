//! What screens can ask for and do, as dialogues of a file's own tests.

use super::*;

/// Each screen that a code leads to has one thing that the examples do not have.
const MENU: &str = r##"
menu: forms
use: { shop: { http: "http://127.0.0.1:1" } }
from:
  ussd:
    http: "POST 127.0.0.1:8080/ussd"
    gateway: hubtel
    codes: { "*1#": weight, "*2#": even, "*3#": guess, "*4#": first, "*5#": both }
languages: [en]
sessions: { timeout: 2m, resume: 5m }
keys: { home: { key: "00", text: Home } }
screens:
  weight:
    text: Weight?
    input: { as: weight, decimal: { min: 0.5, max: 20, places: 2 } }
    go: weighed
  weighed: { text: "${ $weight * 2 } kg", end: true }
  even:
    text: An even number?
    input: { as: number, number: { min: 1, max: 99 }, where: ". % 2 == 0", invalid: It is odd. }
    go: took
  took: { text: "${ $number } it is.", end: true }
  guess:
    text: Guess.
    input: { as: guess, text: { max: 9, pattern: "x.*" }, tries: 2, invalid: No. }
    go: bye
  first:
    text: First
    options: [ { text: Next, go: second } ]
  second:
    text: Second
    options: [ { text: End, go: bye } ]
  both:
    do:
      - parallel:
          one: [ { http: { to: "shop:/one", method: GET }, retry: { times: 2 } } ]
          two: [ { http: { to: "shop:/two", method: GET } } ]
        as: got
    text: "${ $got.one.n + $got.two.n }"
    end: true
  bye: { text: Bye., end: true }
tests:
  - name: decimals within their range and places
    dialogue:
      - { dial: "*1#", contains: "Weight?" }
      - { reply: "0.4", contains: "Please try again." }
      - { reply: "20.01", contains: "Please try again." }
      - { reply: "1.234", contains: "Please try again." }
      - { reply: "1,5", contains: "Please try again." }
      - { reply: "01.25", expect: "2.5 kg", ends: true }
  - name: a condition on what was typed
    dialogue:
      - { dial: "*2#", contains: "An even number?" }
      - { reply: 3, contains: "It is odd.\nAn even number?" }
      - { reply: 100, contains: "It is odd.\nAn even number?" }
      - { reply: 4, expect: "4 it is.", ends: true }
  - name: the last try ends the session
    dialogue:
      - { dial: "*3#", contains: "Guess." }
      - { reply: a, contains: "No.\nGuess." }
      - { reply: b, expect: "No.", ends: true }
  - name: a dropped session is resumed in time
    dialogue:
      - dial: "*4#"
      - { reply: 1, contains: Second }
      - { dial: "*4#", after: 6m, contains: Second }
  - name: and not later
    dialogue:
      - dial: "*4#"
      - { reply: 1, contains: Second }
      - { dial: "*4#", after: 8m, contains: First }
  - name: a session without keys ends
    dialogue:
      - dial: "*4#"
      - { reply: 1, after: 3m, contains: "The session is over", ends: true }
  - name: steps at once, and again
    mock:
      shop:
        - { error: connection }
        - { body: { n: 1 } }
        - { body: { n: 1 } }
    dialogue:
      - { dial: "*5#", expect: "2", ends: true }
"##;

#[test]
fn dialogues_show_what_screens_ask_for_and_do() {
    let folder = TempDir::new();
    let file = folder.write("menu.yaml", MENU);
    let result = output(&["test", file.to_str().unwrap()]);
    let told = String::from_utf8_lossy(&result.stdout).into_owned();
    let errors = String::from_utf8_lossy(&result.stderr).into_owned();
    assert_eq!(result.status.code(), Some(0), "{told}\n{errors}");
    assert!(
        told.contains("7 passed") || told.contains("7 tests"),
        "{told}"
    );
}

/// Each with what `check` says of it.
#[test]
fn check_finds_what_no_subscriber_could_get_out_of() {
    let long = "x".repeat(200);
    let labels = format!(
        "keys: {{ home: {{ key: \"00\", text: {} }} }}\n",
        "y".repeat(90)
    );
    for (keys, screens, expected) in [
        (
            "keys: { exit: { key: \"7\", text: Exit } }\n",
            "start: { text: Number?, input: { as: n, number: { min: 1, max: 9 } }, go: bye }",
            "`7` is the key `exit`, and may be typed here too",
        ),
        (
            "keys: { home: { key: \"98\", text: Home } }\n",
            "start: { text: Go?, options: [ { text: Bye, go: bye } ] }",
            "`more` and `home` are both on the key `98`",
        ),
        (
            "",
            "start: { text: Go?, options: [ { text: Bye, go: bye }, { key: \"1\", text: Two, go: bye } \
             ] }",
            "the key `1` is also the number of an option without a key",
        ),
        (
            "",
            "start: { text: Go?, options: [ { key: \"98\", text: Bye, go: bye } ] }",
            "the key `98` is that of `more` of the menu",
        ),
        (
            "",
            "start: { text: Go?, options: [ { text: Bye, go: bye }, { text: Loop, go: loop } ] }\n  \
             loop: { text: Loop, options: [ { text: Again, go: loop } ] }",
            "no way leads from screen `loop` to the end",
        ),
        (
            "",
            "start: { text: Go?, options: [ { key: \" 2\", text: Bye, go: bye } ] }",
            "nobody can type the key ` 2`",
        ),
        (
            "",
            "start: { text: Go?, options: [ { text: Buy, go: buy } ] }\n  \
             buy: { do: [ { set: { a: 1 } } ], once: { unsure: unsure }, text: Bought, \
             end: true }\n  \
             unsure: { go: [ { if: '$a == 2', go: bye }, { go: buy } ] }",
            "`unsure` of `buy` leads to an action without a key being pressed",
        ),
        (
            "",
            "start: { text: Go?, options: [ { text: Bye, go: bye } ] }\n  alone: { text: A, end: true }",
            "nothing leads to screen `alone`",
        ),
        (
            labels.as_str(),
            "start: { text: Go?, options: [ { text: Bye, go: bye } ] }",
            "the labels in `en` leave too little room for text",
        ),
        (
            "",
            &format!(
                "start: {{ text: Number?, input: {{ as: n, number: {{ min: 1, max: 9 }}, invalid: {{ en: No., \
                 sw: {long} }} }}, go: bye }}"
            ),
            "in `sw`",
        ),
    ] {
        let languages = if expected.contains("sw") {
            "[en, sw]"
        } else {
            "[en]"
        };
        let screens = match languages {
            "[en]" => screens.to_owned(),
            _ => screens.replace("text: Number?", "text: { en: Number?, sw: Namba? }"),
        };
        let bye = match languages {
            "[en]" => "bye: { text: Bye., end: true }",
            _ => "bye: { text: { en: Bye., sw: Kwaheri. }, end: true }",
        };
        let text = format!(
            "menu: m\nfrom: {{ ussd: {{ http: \"POST 127.0.0.1:8080/ussd\", gateway: hubtel, codes: {{ \
             \"*1#\": start }} }} }}\nlanguages: {languages}\n{keys}screens:\n  {screens}\n  {bye}\n"
        );
        let folder = TempDir::new();
        let file = folder.write("menu.yaml", &text);
        let (status, report) = checked(&file);
        assert_eq!(status, Some(1), "{expected}\n{report}");
        assert!(report.contains(expected), "{expected}\n{report}");
    }
}

/// What texts of variables are made of: plain, escaped, wide, combined and joined.
const ALPHABETS: [&[&str]; 4] = [
    &["a", "Z", "0", " ", ".", "é", "@"],
    &["b", " ", "{", "€", "~", "x"],
    &["a", "ê", "ع", " ", "日"],
    &["a", "e\u{301}", "👍🏽", "👩‍👩‍👧", "🇰🇪", " ", "नि"],
];

/// The basic alphabet of GSM 03.38 but for line breaks, and its extension table.
const BASIC: &str = "@£$¥èéùìòÇØøÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?¡\
                     ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà\n";
const EXTENSION: &str = "^{}\\[~]|€";

/// Whether a page fits into 182 septets, or 80 units of UCS-2 where it has other characters.
fn fits(page: &str) -> bool {
    let septets = page.chars().map(|it| match it {
        it if BASIC.contains(it) => Some(1),
        it if EXTENSION.contains(it) => Some(2),
        _ => None,
    });
    match septets.sum::<Option<usize>>() {
        Some(septets) => septets <= 182,
        None => page.encode_utf16().count() <= 80,
    }
}

/// What is typed comes back on as many pages as it needs: each is short enough, and all of them
/// together are the text.
#[test]
fn pages_with_random_variables_keep_their_limits_and_lose_nothing() {
    let port = free_port();
    let menu = format!(
        r##"
menu: echo
from: {{ ussd: {{ http: "POST 127.0.0.1:{port}/ussd", gateway: hubtel, codes: {{ "*1#": ask }} }} }}
languages: [en]
screens:
  ask:
    text: Say.
    input: {{ as: said, text: {{ max: 160 }} }}
    go: shown
  shown:
    text: "One ${{ $said }}, two ${{ $said }}, three (${{ $said | length }}) ${{ $said }}."
    options: [ {{ key: "7", text: End, go: bye }} ]
  bye: {{ text: Bye., end: true }}
"##
    );
    let folder = TempDir::new();
    folder.write("flows/menu.yaml", &menu);
    let data = folder.path().join("data").display().to_string();
    let engine = Engine::run(&[&folder.path().join("flows")], &["--data", &data]);
    let mut random = fastrand::Rng::with_seed(20);
    let mut most = 0;
    for session in 0..80 {
        let alphabet = ALPHABETS[random.usize(..ALPHABETS.len())];
        let length = random.usize(1..40);
        let said: String = (0..length)
            .map(|_| alphabet[random.usize(..alphabet.len())])
            .collect();
        let said = match said.trim() {
            "" => "x",
            said => said,
        };
        let mut sequence = 0;
        let mut send = |kind: &str, message: &str| {
            sequence += 1;
            let body = serde_json::json!({
                "Type": kind, "Message": message, "ServiceCode": "1", "Operator": "mtn",
                "Sequence": sequence, "SessionId": format!("s{session}"), "Mobile": "233244000001",
            });
            let reply = post(port, "/ussd", "application/json", &body.to_string());
            assert_eq!(reply.status, 200, "{}", reply.text());
            let reply: serde_json::Value = serde_json::from_str(&reply.text()).unwrap();
            reply["Message"].as_str().unwrap().to_owned()
        };
        send("Initiation", "*1#");
        let mut page = send("Response", said);
        let (mut text, mut count) = (String::new(), 1);
        loop {
            assert!(fits(&page), "{said}: {page}");
            let content = page.strip_suffix("\n99. Back").unwrap_or(&page);
            match content.strip_suffix("\n98. More") {
                Some(content) => {
                    text.push_str(content.strip_suffix("\n99. Back").unwrap_or(content))
                }
                None => {
                    text.push_str(content);
                    break;
                }
            }
            page = send("Response", "98");
            count += 1;
        }
        most = most.max(count);
        let length = said.chars().count();
        let expected = format!("One {said}, two {said}, three ({length}) {said}.\n7. End");
        assert_eq!(text, expected);
    }
    assert!(most > 2, "{most} pages at most");
    engine.stop();
}
