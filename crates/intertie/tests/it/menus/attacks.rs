//! What an attacker, or a gateway that is broken, can do to sessions.

use super::*;

/// A text may hold a `*`, which also stands between inputs: that of a PIN must not become part of
/// the text that was asked for before it.
#[test]
fn a_pin_behind_a_request_that_was_lost_becomes_no_text() {
    let place = Place::new("africas-talking", Duration::ZERO);
    let text = format!(
        r##"
menu: names
from: {{ ussd: {{ http: "POST 127.0.0.1:{}/ussd", gateway: africas-talking, codes: {{ "*123#": name }} }} }}
languages: [en]
screens:
  name:
    text: Name?
    input: {{ as: name, text: {{ max: 40 }}, tries: 2 }}
    go: pin
  pin:
    text: "PIN, ${{ $name }}?"
    input: {{ as: pin, pin: {{ digits: 6 }} }}
    go: done
  done: {{ text: "Thanks, ${{ $name }}.", end: true }}
"##,
        place.port
    );
    place.folder.write("flows/menu.yaml", &text);
    let engine = place.run();
    let send = |text: &str| place.send("s1", NUMBER, text);
    assert_eq!(send(""), "CON Name?");
    // What the phone showed in between was of a request that the engine does not know of.
    let again = "CON Please try again.\nName?";
    assert_eq!(send("Anna*918273"), again);
    assert_eq!(send("Anna*918273"), again, "the request again");
    // The screen has refused nothing: there are two tries left.
    assert_eq!(send("Anna*918273*Anna*918273"), again);
    assert_eq!(send("Anna*918273*Anna*918273*"), again, "an empty name");
    let typed = "Anna*918273*Anna*918273**Anna";
    assert_eq!(send(typed), "CON PIN, Anna?");
    let end = format!("{typed}*918273");
    assert_eq!(send(&end), "END Thanks, Anna.");
    assert_eq!(send(&end), "END Thanks, Anna.", "the last request again");
    assert_eq!(place.files_with("918273"), Vec::<PathBuf>::new());
    let log = engine.stop();
    assert!(!log.contains("918273"), "{log}");
    assert_eq!(place.files_with("918273"), Vec::<PathBuf>::new());
    assert_ne!(place.files_with("Anna"), Vec::<PathBuf>::new());
}
