//! Large bodies are compared beside the worker, and the result is the same.

use component::exchange::FlowContext;
use component::scope::BUILT_IN;
use message::{Headers, Method, Request};

use super::*;
use crate::poll::testing::TestServices;

fn exchange(text: &str) -> Exchange {
    let mut headers = Headers::new();
    headers.append("Content-Type", "application/json");
    let request = Request {
        method: Method::Post,
        path: "/".to_owned(),
        query: None,
        parameters: Vec::new(),
        headers,
        body: text.as_bytes().to_vec().into(),
        peer: [127, 0, 0, 1].into(),
        proxy: None,
        is_secure: false,
        certificate: None,
        caller: None,
    };
    Exchange::new(&Arc::new(FlowContext::new("test")), request)
}

fn changes(body_max: usize) -> Changes {
    Changes {
        key: None,
        steps: None,
        slot: BUILT_IN.len(),
        body_max,
        table: Arc::new(Table::new(10, 64 << 20)),
    }
}

/// What `$changes` is behind these bodies, each of a text of so many bytes, or the failure; and how
/// often something was done beside the worker.
async fn compared(step: &Changes, sizes: &[usize]) -> (Result<String, Fault>, usize) {
    let services = TestServices::new(|_, _| unreachable!("nobody is asked"));
    let mut last = Ok(String::new());
    for &size in sizes {
        let mut message = exchange("{}");
        let text = expr::value::text("x".repeat(size));
        message.set_value(object([
            ("a".to_owned(), text),
            ("b".to_owned(), Value::Null),
        ]));
        last = step.run(&mut message, &services).await.map(|_| {
            let changes = message.slot(BUILT_IN.len());
            let patch = expr::value::get(&changes, "patch").cloned();
            let mut text = Vec::new();
            expr::json::write(&patch.unwrap_or_default(), 1 << 30, &mut text).unwrap();
            String::from_utf8(text).unwrap()
        });
    }
    (last, services.beside.get())
}

#[tokio::test]
async fn large_bodies_are_compared_beside_the_worker() {
    let (patch, beside) = compared(&changes(1 << 20), &[3, 2]).await;
    let expected = r#"[{"op":"replace","path":"","value":{"a":"xx","b":null}}]"#;
    assert_eq!((patch.unwrap().as_str(), beside), (expected, 0));
    // Each body, and the difference.
    let (patch, beside) = compared(&changes(1 << 20), &[300_000, 300_001]).await;
    assert!(patch.unwrap().starts_with("[{\"op\":\"replace\""));
    assert_eq!(beside, 3);
    let (patch, beside) = compared(&changes(1 << 20), &[300_000, 300_000]).await;
    assert_eq!((patch.unwrap().as_str(), beside), ("null", 3));
}

#[tokio::test]
async fn a_body_above_the_limit_is_refused_wherever_it_is_looked_at() {
    for (body_max, size) in [(1000, 2000), (1000, 300_000), (1 << 20, 2 << 20)] {
        let fault = compared(&changes(body_max), &[size]).await.0.unwrap_err();
        assert_eq!(fault.status, 413, "{size}");
    }
}
