//! The functions that jq does not have.

/// Name with arity, and what it does.
const FUNCTIONS: &[(&str, &str)] = &[
    ("@base64url/0", "Base64 for URLs, without padding"),
    (
        "@base64urld/0",
        "what `@base64url` made: text where it is UTF-8, else bytes",
    ),
    ("@hex/0", "the bytes of a string in hexadecimal"),
    ("@hexd/0", "the bytes that hexadecimal text stands for"),
    (
        "dec_add/2",
        "the exact sum of two decimals (numbers or texts)",
    ),
    ("dec_cmp/2", "-1, 0 or 1: how two decimals compare"),
    (
        "dec_div/3",
        "a quotient, rounded to so many digits behind the point",
    ),
    ("dec_mul/2", "the exact product of two decimals"),
    (
        "dec_round/1",
        "rounded to so many digits; half goes away from zero",
    ),
    ("dec_sub/2", "the exact difference of two decimals"),
    ("dec_sum/0", "the exact sum of an array of decimals"),
    (
        "default/1",
        "the argument in the place of null, and only of null",
    ),
    (
        "format_time/2",
        "a time by a format of strftime, in a time zone",
    ),
    ("frombase64/0", "the bytes that Base64 text stands for"),
    (
        "fromcsv/0",
        "the rows of CSV text as objects, named by its first row",
    ),
    (
        "fromcsv/1",
        "the rows of CSV text; `fromcsv(false)` gives arrays, for text without a header",
    ),
    (
        "fromform/0",
        "the fields of a form (application/x-www-form-urlencoded)",
    ),
    (
        "fromxml/0",
        "the value of an XML document: `@` attributes, `#content` text",
    ),
    ("hmac_sha1/1", "HMAC-SHA-1 with a key, in hexadecimal"),
    ("hmac_sha256/1", "HMAC-SHA-256 with a key, in hexadecimal"),
    ("hmac_sha512/1", "HMAC-SHA-512 with a key, in hexadecimal"),
    ("in_zone/1", "`in_zone(.; zone)`"),
    ("in_zone/2", "a time as RFC 3339 text in a time zone"),
    (
        "index_by/1",
        "an object of the entries by a key; two entries with one key are an error",
    ),
    (
        "iso_time/0",
        "a time as RFC 3339 text in UTC, fractions included",
    ),
    (
        "join_on/4",
        "`join_on(left; right; f; g)`: the pairs whose `f` of left equals `g` of right",
    ),
    (
        "list/0",
        "null is [], an array stays, anything else becomes its one entry",
    ),
    ("md5/0", "MD5 of a string, in hexadecimal"),
    ("money/0", "rounded to two digits behind the point"),
    ("money/1", "the same as `dec_round`"),
    (
        "parse_time/0",
        "seconds since 1970 of RFC 3339 text, offset and fractions included",
    ),
    ("sha1/0", "SHA-1 of a string, in hexadecimal"),
    ("sha256/0", "SHA-256 of a string, in hexadecimal"),
    ("sha512/0", "SHA-512 of a string, in hexadecimal"),
    ("time_add/1", "`time_add(.; duration)`"),
    (
        "time_add/2",
        "a time and an ISO 8601 duration added; text stays text",
    ),
    ("time_diff/1", "seconds from another time to this one"),
    ("tocsv/0", "rows (arrays, or objects under a header) as CSV"),
    (
        "toform/0",
        "an object as a form (application/x-www-form-urlencoded)",
    ),
    (
        "toxml/0",
        "a value as an XML document: `@` attributes, `#content` text",
    ),
    ("utf8/0", "the text of bytes that are UTF-8"),
    ("uuid/0", "a new random UUID (version 4)"),
    ("uuid7/0", "a new UUID that sorts by time (version 7)"),
];

/// The functions that jq does not have: name with arity, and what they do.
pub fn function_names() -> Vec<(&'static str, &'static str)> {
    FUNCTIONS.to_vec()
}
