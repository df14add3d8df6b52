//! What reading, mapping and writing a message costs, in microseconds, ours and jaq's.

use std::hint::black_box;
use std::time::Instant;

use bytes::Bytes;
use expr::{Expression, Limits, Scope, Value, Variables, json};

struct Nothing;

impl Scope for Nothing {
    fn slot(&self, _: &str) -> Option<usize> {
        None
    }
    fn names(&self) -> Vec<String> {
        Vec::new()
    }
}

impl Variables for Nothing {
    fn get(&self, _: usize) -> Value {
        Value::Null
    }
    fn now(&self) -> f64 {
        0.0
    }
}

const CODE: &str = "{ id: .orderId, customer: .customer.name, city: .customer.address.city, \
    total: .total, currency: .currency, first: .lines[0].sku, count: .count, paid: .paid, \
    note: .note, at: .createdAt }";

const BODY: &str = r#"{"orderId":"ORD-2026-000123","createdAt":"2026-11-21T10:15:30.123Z",
"currency":"EUR","total":1234.50,"count":3,"paid":true,"note":"Leave at the front desk, please",
"customer":{"id":991234,"name":"Ada Lovelace","email":"ada@example.org","vip":false,
"address":{"street":"12 St James's Square","city":"London","zip":"SW1Y 4JH","country":"GB"}},
"lines":[{"sku":"AB-1000-XL","qty":2,"price":199.99,"title":"Analytical engine, brass"},
{"sku":"AB-2000-S","qty":1,"price":834.52,"title":"Difference engine, second hand"},
{"sku":"ZZ-9","qty":10,"price":0.00,"title":"Punched cards"}],"tags":["new","export","fragile"],
"channel":"web","session":"8f14e45fceea167a5a36dedd4bea2543","ip":"192.0.2.17","retries":0,
"discount":null,"shipping":{"method":"courier","cost":12.00,"eta":"2026-11-24","insured":true},
"meta":{"source":"checkout","version":"4.18.2","ab":"variant-b","risk":0.021}}"#;

fn measure(name: &str, mut run: impl FnMut()) {
    let mut best = f64::MAX;
    for _ in 0..7 {
        let start = Instant::now();
        for _ in 0..20_000 {
            run();
        }
        best = best.min(start.elapsed().as_secs_f64() / 20_000.0 * 1e6);
    }
    println!("{name:<22} {best:>7.2} us");
}

fn main() {
    let body = Bytes::from_static(BODY.as_bytes());
    let limits = Limits::default();
    let Ok(expression) = Expression::compile(CODE, &Nothing) else {
        return println!("the expression does not compile");
    };
    let Ok(value) = json::parse(&body, 128) else {
        return println!("the body is not JSON");
    };
    let Ok(result) = expression.evaluate(&value, &Nothing, &limits) else {
        return println!("the expression fails");
    };
    let mut out = Vec::new();
    let _ = json::write(&result, 1 << 20, &mut out);
    println!("{} bytes in, {} bytes out", body.len(), out.len());
    measure("parse", || {
        drop(black_box(json::parse(black_box(&body), 128)))
    });
    measure("evaluate", || {
        drop(black_box(expression.evaluate(&value, &Nothing, &limits)))
    });
    measure("write", || {
        out.clear();
        let _ = json::write(black_box(&result), 1 << 20, &mut out);
    });
    measure("whole", || {
        out.clear();
        if let Ok(value) = json::parse(black_box(&body), 128)
            && let Ok(result) = expression.evaluate(&value, &Nothing, &limits)
        {
            let _ = json::write(&result, 1 << 20, &mut out);
        }
    });
    measure("project", || {
        out.clear();
        expression.project(black_box(&body), 128, &limits, &mut out);
    });
    measure("evaluate without tree", || {
        drop(black_box(
            expression.evaluate_slow(&value, &Nothing, &limits),
        ));
    });
    jaq_alone(&body);
}

fn jaq_alone(body: &Bytes) {
    use jaq_core::load::{Arena, File, Loader};
    use jaq_core::{Compiler, Ctx, Vars, data};
    let defs = jaq_core::defs()
        .chain(jaq_std::defs())
        .chain(jaq_json::defs());
    let funs = jaq_core::funs()
        .chain(jaq_std::funs())
        .chain(jaq_json::funs());
    let arena = Arena::default();
    let file = File {
        code: CODE,
        path: (),
    };
    let Ok(modules) = Loader::new(defs).load(&arena, file) else {
        return;
    };
    let Ok(filter) = Compiler::default().with_funs(funs).compile(modules) else {
        return;
    };
    let run = |value: Value| {
        let context = Ctx::<data::JustLut<Value>>::new(&filter.lut, Vars::new([]));
        filter.id.run((context, value)).next()
    };
    measure("jaq: parse", || {
        drop(black_box(jaq_json::read::parse_single(black_box(body))))
    });
    measure("jaq: whole", || {
        if let Ok(value) = jaq_json::read::parse_single(black_box(body))
            && let Some(Ok(result)) = run(value)
        {
            drop(black_box(result.to_string()));
        }
    });
}
