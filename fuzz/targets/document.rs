//! Documents of topics: two JSON texts, with a line break of 0xff between. What is read is read
//! again as it is written, and a patch always makes the one of the other.

#![no_main]

use libfuzzer_sys::fuzz_target;
use topics::document::{Change, Document, apply, diff};

fuzz_target!(|bytes: &[u8]| {
    let mut parts = bytes.splitn(2, |byte| *byte == 0xff);
    let before = parts.next().map(Document::parse);
    let after = parts.next().map(Document::parse);
    for document in [&before, &after].into_iter().flatten().flatten() {
        let again = Document::parse(document.text()).expect("it is JSON");
        assert_eq!(again.text(), document.text());
    }
    let (Some(Ok(before)), Some(Ok(after))) = (before, after) else {
        return;
    };
    match diff(&before, &after) {
        Change::Nothing => assert!(before.is_same(&after)),
        Change::Whole => assert!(!before.is_same(&after)),
        Change::Patch(patch) => {
            assert!(patch.len() < after.text().len());
            let made = apply(&before, &patch, usize::MAX).expect("it fits");
            assert!(made.is_same(&after));
        }
    }
    // Any text as a patch.
    let _ = apply(&before, after.text(), 1 << 20);
});
