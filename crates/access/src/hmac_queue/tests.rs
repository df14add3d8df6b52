//! Tags alone and in batches, in any order of polls and drops.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Waker;

use super::*;

fn poll(signing: &mut Signing) -> Poll<Tag> {
    pin!(signing).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn this_processor_hashes_several_messages_rightly() {
    assert!(passes_self_test());
}

/// RFC 4231, test cases 2 and 6: a short key, and one that is longer than a block.
#[test]
fn published_examples_have_their_tags_alone_and_in_a_batch() {
    let long = [0xaa; 131];
    for (key, message, tag) in [
        (
            &b"Jefe"[..],
            &b"what do ya want for nothing?"[..],
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        ),
        (
            &long,
            b"Test Using Larger Than Block-Size Key - Hash Key First",
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
        ),
    ] {
        let key = Arc::new(HmacKey::new(key));
        assert_eq!(crate::hex::encode(&key.sign(&[message])), tag);
        let (start, body) = message.split_at(5);
        let start = std::str::from_utf8(start).unwrap();
        let body = Bytes::from_static(body);
        let messages: Vec<QueuedMessage> = (0..9)
            .map(|_| QueuedMessage::new(&key, start, &body))
            .collect();
        for one in sign_batch(&messages.iter().collect::<Vec<_>>()) {
            assert_eq!(crate::hex::encode(&one), tag);
        }
    }
}

#[test]
fn messages_that_come_before_the_second_poll_share_a_batch() {
    let queue = HmacQueue::default();
    let key = Arc::new(HmacKey::new(b"key"));
    let body = Bytes::from(vec![b'x'; 5_000]);
    let sign = |start: &str| queue.sign(&key, start, &body);
    let tag = |start: &str| key.sign(&[start.as_bytes(), &body]);
    let (mut first, mut second) = (sign("1"), sign("2"));
    let is_together = lane_width() > 1;
    assert_eq!(poll(&mut first).is_pending(), is_together);
    let mut third = sign("3");
    assert_eq!(companions(&first), if is_together { 3 } else { 1 });
    assert_eq!(poll(&mut first), Poll::Ready(tag("1")));
    let late = sign("4");
    assert_eq!(companions(&late), 1, "the first batch is over");
    for (signing, start) in [(&mut second, "2"), (&mut third, "3")] {
        assert_eq!(
            poll(signing),
            Poll::Ready(tag(start)),
            "it is there already"
        );
    }
}

/// How many messages are signed with this one, if it has not been polled twice.
fn companions(signing: &Signing) -> usize {
    match &signing.0 {
        SigningState::Signed(_) => 1,
        SigningState::Waiting { batch, .. } => Rc::strong_count(batch),
    }
}

#[test]
fn a_batch_is_closed_when_it_has_enough() {
    let queue = HmacQueue::default();
    let key = Arc::new(HmacKey::new(b"key"));
    for size in [0, 1 << 10, 2 << 10, 20_000, 60_000, 64 << 10, 100_000] {
        let body = Bytes::from(vec![b'x'; size]);
        let all: Vec<Signing> = (0..200).map(|_| queue.sign(&key, "", &body)).collect();
        let most = match BODY_BYTES.contains(&size) && lane_width() > 1 {
            true => BATCH_COUNT
                .min(BATCH_BYTES.div_ceil(size))
                .next_multiple_of(lane_width())
                .min(BATCH_BYTES_MAX.div_ceil(size)),
            false => 1,
        };
        assert_eq!(companions(&all[0]), most, "{size} bytes");
        assert_eq!(companions(&all[100]), most, "{size} bytes");
    }
}

/// Whatever happens while tags are computed, nobody gets those of a message that came later.
#[test]
fn a_batch_whose_tags_could_not_be_computed_is_joined_by_nobody() {
    let queue = HmacQueue::default();
    let key = Arc::new(HmacKey::new(b"key"));
    let body = Bytes::from(vec![b'x'; 5_000]);
    let first = queue.sign(&key, "1", &body);
    let SigningState::Waiting { batch, .. } = &first.0 else {
        assert_eq!(lane_width(), 1, "there are no batches");
        return;
    };
    let sign = || batch.tag(0, |_| panic!("the code that hashes has a fault"));
    assert!(catch_unwind(AssertUnwindSafe(sign)).is_err());
    assert_eq!(companions(&queue.sign(&key, "2", &body)), 1);
    assert_eq!(companions(&first), 1);
}

/// Tasks that come, are polled and are dropped in any order get the tags that they would get alone.
#[test]
fn every_message_gets_its_own_tag_in_any_order() {
    for seed in 0..500 {
        let mut random = fastrand::Rng::with_seed(seed);
        let queue = HmacQueue::default();
        let text: String = (0..10_000).map(|_| random.alphanumeric()).collect();
        let bytes = Bytes::from(text.clone());
        let key = |random: &mut fastrand::Rng| HmacKey::new(&bytes[..random.usize(1..200)]);
        let keys: Vec<_> = (0..5).map(|_| Arc::new(key(&mut random))).collect();
        let is_equal = random.bool();
        let mut waiting = Vec::new();
        let mut signed = 0;
        for _ in 0..100 {
            match random.u8(..10) {
                0..5 => {
                    let key = &keys[random.usize(..keys.len())];
                    let (start, length) = match is_equal {
                        true => (50, 3_000),
                        false => (random.usize(..200), random.usize(1_000..5_000)),
                    };
                    let body = bytes.slice(length..2 * length);
                    let expected = key.sign(&[&text.as_bytes()[..start], &body]);
                    waiting.push((queue.sign(key, &text[..start], &body), expected));
                }
                5 if !waiting.is_empty() => {
                    waiting.swap_remove(random.usize(..waiting.len()));
                }
                6.. if !waiting.is_empty() => {
                    let at = random.usize(..waiting.len());
                    if let Poll::Ready(tag) = poll(&mut waiting[at].0) {
                        assert_eq!(tag, waiting[at].1, "seed {seed}");
                        waiting.swap_remove(at);
                        signed += 1;
                    }
                }
                _ => {}
            }
        }
        assert!(signed > 0, "seed {seed}");
        drop(waiting);
        let left = queue.open.borrow().upgrade();
        assert!(left.is_none(), "bodies stay in memory");
    }
}
