//! WSDL files, schemas and messages: never a panic, and what is written can be read back.
//!
//! Each input is up to three parts with a zero byte between: the WSDL file, a body as JSON, and an
//! envelope.

#![no_main]

use bytes::Bytes;
use connectors::soap::envelope::{Envelope, Message, body_value};
use connectors::soap::wsdl::{Operation, Version, Wsdl};
use libfuzzer_sys::fuzz_target;

/// The most operations that are tried of one file.
const OPERATIONS_MAX: usize = 8;

fuzz_target!(|bytes: &[u8]| {
    let mut parts = bytes.splitn(3, |it| *it == 0);
    let mut next = || Bytes::copy_from_slice(parts.next().unwrap_or_default());
    let (wsdl, body, envelope) = (next(), next(), next());
    let Ok(wsdl) = Wsdl::read("a.wsdl", &|_| Ok(wsdl.clone())) else {
        return;
    };
    for port in wsdl.ports(None).into_iter().flatten() {
        for name in wsdl.operations(&port).into_iter().take(OPERATIONS_MAX) {
            if let Ok(operation) = wsdl.operation(&port, name) {
                try_out(&operation, port.version, &body, &envelope);
            }
        }
    }
});

fn try_out(operation: &Operation, version: Version, body: &Bytes, envelope: &Bytes) {
    let (shape, model) = (&operation.input, &operation.model);
    let read = |text: &Bytes| {
        let envelope = Envelope::read(text, b"").ok()?;
        let _ = envelope.fault(model, &operation.faults);
        Some(body_value(shape, model, operation.is_rpc, &envelope.body))
    };
    read(envelope);
    let Ok(body) = expr::json::parse(body, 200) else {
        return;
    };
    let message = Message {
        version,
        model,
        shape,
        size_max: 1 << 20,
    };
    if let Ok(text) = message.write(&body, None, None) {
        assert!(read(&text.clone().into()).is_some(), "no envelope: {text}");
    }
}
