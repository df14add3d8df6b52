//! Numbers and text as the page shows them.

/// Text that stands for itself in HTML.
pub(in crate::bench) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            _ => out.push(letter),
        }
    }
    out
}

/// An integer in groups of three digits.
pub(in crate::bench) fn grouped(number: f64) -> String {
    let digits = format!("{:.0}", number.max(0.0));
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A number with three digits that count.
pub(in crate::bench) fn short(number: f64) -> String {
    match number {
        _ if number >= 1000.0 => grouped(number),
        _ if number >= 100.0 => format!("{number:.0}"),
        _ if number >= 10.0 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

/// A part as a percentage.
pub(in crate::bench) fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

/// Bytes as megabytes.
pub(in crate::bench) fn megabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_easy_to_read() {
        assert_eq!(grouped(1_234_567.4), "1,234,567");
        assert_eq!(grouped(999.0), "999");
        assert_eq!(short(12_345.6), "12,346");
        assert_eq!(
            [short(123.4), short(12.34), short(1.234)],
            ["123", "12.3", "1.23"]
        );
        assert_eq!(
            (percent(0.987), megabytes(1_500_000)),
            ("99 %".into(), "1.5".into())
        );
        assert_eq!(escape("<a & \"b\">"), "&lt;a &amp; &quot;b&quot;&gt;");
    }
}
