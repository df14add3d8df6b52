//! AMQP: any bytes of a broker, in any pieces, give events or an error, never a panic; what is read
//! is written and read again the same.

#![no_main]

use amqp::{Event, Handshake, Login, Properties, Receiver, Table};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, input)) = bytes.split_first() else {
        return;
    };
    table(input);
    properties(input);
    let mut out = Vec::new();
    let login = Login {
        user: (first & 1 == 0).then(|| ("u".to_owned(), "p".to_owned())),
        vhost: "/".to_owned(),
        name: "n".to_owned(),
        product: ("p", "1"),
        heartbeat: 10,
        frame_max: 4096,
    };
    let mut handshake = Handshake::new(login, &mut out);
    let mut receiver = Receiver::new(4096, 1024);
    let mut waiting = Vec::new();
    for piece in input.chunks(usize::from(first >> 1) + 1) {
        waiting.extend_from_slice(piece);
        let mut used = 0;
        loop {
            match receiver.next(&waiting[used..]) {
                Err(_) => return,
                Ok(None) => break,
                Ok(Some((event, count))) => {
                    assert!(count > 0 && count <= waiting.len() - used);
                    look(event, &mut handshake, &mut out);
                    used += count;
                }
            }
        }
        waiting.drain(..used);
        assert!(waiting.len() <= 4096 + piece.len());
    }
});

fn look(event: Event<'_>, handshake: &mut Handshake, out: &mut Vec<u8>) {
    match event {
        Event::Method(_, method) => {
            let _ = handshake.take(&method, out);
            out.clear();
        }
        Event::Message(channel, message) => {
            assert!(channel > 0 && message.body.len() <= 1024);
            message.received().unwrap();
            properties(message.raw_properties());
        }
        Event::Heartbeat | Event::Part => {}
    }
}

fn table(bytes: &[u8]) {
    let Ok(table) = Table::read(bytes) else {
        return;
    };
    let mut written = Vec::new();
    table.write(&mut written).unwrap();
    let again = Table::read(&written[4..]).unwrap();
    let mut twice = Vec::new();
    again.write(&mut twice).unwrap();
    assert_eq!(written, twice);
}

fn properties(bytes: &[u8]) {
    let Ok(read) = Properties::read(bytes) else {
        return;
    };
    let mut written = Vec::new();
    read.write(&mut written).unwrap();
    assert_eq!(Properties::read(&written).unwrap(), read);
}
