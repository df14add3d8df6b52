//! The hub of a topic that is not for everybody.

use std::time::{SystemTime, UNIX_EPOCH};

use ::access::api_keys::ApiKey;

use super::*;

/// A topic for partners, and the key of one.
fn locked() -> (Place, String) {
    let place = Place::new("{ publish: true }");
    let file = place.folder.path().join("flows/topic.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let (key, entry) = ApiKey::generate("shop", now.as_secs()).unwrap();
    place.folder.write("flows/partners.keys", &entry.to_line());
    let ways = "engine:\n  auth: { partners: { api_key: { keys: partners.keys } } }\n";
    let text = text.replacen("engine:\n", ways, 1);
    let text = text.replace("  via: []\n", "  via: []\n  auth: partners\n");
    std::fs::write(&file, text).unwrap();
    (place, key)
}

fn ask(place: &Place, credential: &str, parameters: &[(&str, &str)]) -> Response {
    let mut client = RawClient::connect(place.port);
    let body = form(parameters);
    client.send(format!(
        "POST /hub HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         {credential}Content-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    client.response()
}

#[test]
fn who_may_not_subscribe_does_not_by_the_hub_either() {
    let ((place, key), subscriber) = (locked(), Subscriber::new());
    let engine = place.run();
    let (topic, callback) = (place.topic(), subscriber.callback("/"));
    let parameters = [
        ("hub.mode", "subscribe"),
        ("hub.topic", &*topic),
        ("hub.callback", &*callback),
    ];
    let refused = ask(&place, "", &parameters).status;
    assert_eq!(refused, 401);
    let wrong = ask(&place, "X-Api-Key: wrong\r\n", &parameters);
    assert_eq!(wrong.status, 401);
    assert_eq!(get(place.port, "/topics/news").status, 401);
    let ping = [("hub.mode", "publish"), ("hub.url", &*topic)];
    assert_eq!(ask(&place, "", &ping).status, 401);
    let key = format!("X-Api-Key: {key}\r\n");
    assert_eq!(ask(&place, &key, &parameters).status, 202);
    wait_for_subscriptions(&engine, 1);
    assert_eq!(subscriber.questions().len(), 1);
    engine.stop();
}
