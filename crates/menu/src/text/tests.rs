//! Random texts, limits and alphabets; and lengths that are known.

use fastrand::Rng;

use super::*;

/// What texts are made of: plain, escaped, wide, combined and joined.
const ALPHABETS: &[&[&str]] = &[
    &["a", "Z", "0", " ", " ", "\n", ".", "é", "@"],
    &["a", "b", " ", "{", "}", "€", "^", "~", "\n"],
    &["a", "ê", "ع", "م", " ", "日", "\n"],
    &["a", "e\u{301}", "👍🏽", "👩‍👩‍👧", "🇰🇪", " ", "\r\n", "नि"],
];

fn random_text(random: &mut Rng) -> String {
    let alphabet = ALPHABETS[random.usize(..ALPHABETS.len())];
    let length = random.usize(..600);
    (0..length)
        .map(|_| alphabet[random.usize(..alphabet.len())])
        .collect()
}

/// No page is longer than its limit, pages joined are the text, and no grapheme cluster is split.
#[test]
fn pages_of_random_texts_keep_their_limits() {
    for seed in 0..300 {
        let mut random = Rng::with_seed(seed);
        let text = random_text(&mut random);
        let septets = random.usize(SEPTETS_MIN..=SEPTETS_MAX);
        let line_break = random.usize(1..=2);
        let limit = Limit::new(septets).unwrap().with_line_breaks(line_break);
        let footers = Footers {
            more: ["98. More", "98. Zaidi", "98", "9. ∞"][random.usize(..4)],
            back: ["99. Back", "0", "00. ←"][random.usize(..3)],
            first: ["", "#. Up"][random.usize(..2)],
            always: ["", "", "0. Out"][random.usize(..3)],
            ends: false,
        };
        let has_room = footers.leave_room(limit);
        if !has_room {
            continue;
        }
        let pages = paginate(&text, footers, limit);
        let joined: String = pages.iter().map(|page| page.content.as_str()).collect();
        assert_eq!(joined, text, "seed {seed}");
        let mut ends = Vec::new();
        let mut end = 0;
        for (number, page) in pages.iter().enumerate() {
            let sent = match line_break {
                1 => page.text(),
                _ => page.text().replace('\n', "\r\n"),
            };
            let (encoding, units) = measure(&sent);
            assert!(units <= limit.units(encoding), "seed {seed}: {page:?}");
            let has = |label: &str| page.footer.lines().any(|line| line == label);
            assert_eq!(has(footers.more), number + 1 < pages.len(), "seed {seed}");
            assert_eq!(has(footers.back), number > 0, "seed {seed}");
            let has_first = has(footers.first) && !footers.first.is_empty();
            assert!(!has_first || number == 0, "seed {seed}");
            end += page.content.len();
            ends.push(end);
        }
        let boundaries: Vec<usize> = text.grapheme_indices(true).map(|(at, _)| at).collect();
        for end in ends.iter().filter(|end| **end < text.len()) {
            assert!(boundaries.contains(end), "seed {seed}: split at {end}");
        }
    }
}

/// A cluster that no page can hold is split between characters: nothing is lost and it ends.
#[test]
fn a_cluster_longer_than_a_page_is_split_between_characters() {
    let text = format!("a{}b", "\u{301}".repeat(500));
    let limit = Limit::default();
    let pages = paginate(&text, Footers::default(), limit);
    let joined: String = pages.iter().map(|page| page.content.as_str()).collect();
    assert_eq!(joined, text);
    assert!(pages.iter().all(|page| measure(&page.text()).1 <= 80));
}

/// One cluster of 16 KiB is looked at page by page, not to its end for each.
#[test]
fn a_very_long_cluster_costs_no_more_than_its_length() {
    let text = format!("a{}", "\u{301}".repeat(8 << 10));
    let pages = paginate(&text, Footers::default(), Limit::default());
    assert_eq!(pages.len(), 103);
    let joined: usize = pages.iter().map(|page| page.content.len()).sum();
    assert_eq!(joined, text.len());
}

#[test]
fn limits_are_those_of_160_octets() {
    let limit = Limit::default();
    assert_eq!(limit.units(Encoding::Gsm7), 182);
    assert_eq!(limit.units(Encoding::Ucs2), 80);
    assert_eq!(Limit::new(160).unwrap().units(Encoding::Ucs2), 70);
    assert!(Limit::new(183).is_none() && Limit::new(59).is_none());
    let exact = "{".repeat(91);
    assert_eq!(measure(&exact), (Encoding::Gsm7, 182));
    assert_eq!(paginate(&exact, Footers::default(), limit).len(), 1);
    let over = format!("{exact}a");
    assert_eq!(paginate(&over, Footers::default(), limit).len(), 2);
    assert_eq!(measure("👍"), (Encoding::Ucs2, 2));
    assert_eq!(outside_alphabet("Muda wa ç"), Some('ç'));
}

#[test]
fn pages_end_behind_lines_and_words() {
    let lines: String = (1..=20)
        .map(|it| format!("{it}. Bundle no {it}\n"))
        .collect();
    let footers = Footers {
        more: "98. More",
        back: "99. Back",
        ..Footers::default()
    };
    let pages = paginate(&lines, footers, Limit::new(100).unwrap());
    assert!(pages.len() > 3);
    assert_eq!(pages.last().unwrap().footer, "99. Back");
    // No key does anything behind the end of a session.
    let ends = Footers {
        ends: true,
        ..footers
    };
    let of_end = paginate(&lines, ends, Limit::new(100).unwrap());
    assert_eq!(of_end.len(), pages.len());
    assert_eq!(of_end.last().unwrap().footer, "");
    assert_eq!(of_end[1].footer, pages[1].footer);
    assert!(
        pages.iter().all(|page| page.content.ends_with('\n')),
        "{pages:?}"
    );
    let words = "lorem ipsum ".repeat(30);
    let pages = paginate(&words, footers, Limit::default());
    assert!(
        pages.iter().all(|page| page.content.ends_with(' ')),
        "{pages:?}"
    );
}

#[test]
fn labels_have_to_leave_room() {
    let wide = Footers {
        more: "98. Continue with the next page of the screen",
        ..Footers::default()
    };
    assert!(!wide.leave_room(Limit::new(60).unwrap()));
    assert!(Footers::default().leave_room(Limit::new(60).unwrap()));
}
