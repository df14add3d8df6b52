//! `intertie ussd`: dialogues by a script.

use std::io::Write;
use std::process::Stdio;

use super::*;
use crate::support::command;

#[test]
fn a_script_holds_a_dialogue() {
    let place = Place::new("hubtel", Duration::ZERO);
    let file = place.folder.path().join("flows/menu.yaml");
    let file = file.to_str().unwrap();
    let replies = [
        "--reply", "1", "--reply", "50", "--reply", "123456", "--reply", "1",
    ];
    let result = output(&[&["ussd", file, "--msisdn", "+254711000001"], &replies[..]].concat());
    let text = String::from_utf8(result.stdout).unwrap();
    assert_eq!(
        text,
        "> *123#\nAirtime\n1. Buy\n0. Exit\n> 1\nHow much?\n> 50\nPIN for 50?\n> 123456\n\
         Buy for 50, +254711000001?\n1. Sure\n> 1\nBought 50.\n",
        "{}",
        String::from_utf8_lossy(&result.stderr)
    );
    assert_eq!(result.status.code(), Some(0));

    // What is left when the session is over is a mistake in the script.
    let surplus = [&["ussd", file], &replies[..], &["--reply", "1"]].concat();
    let result = output(&surplus);
    let told = String::from_utf8_lossy(&result.stderr).into_owned();
    assert_eq!(result.status.code(), Some(1), "{told}");
    assert!(told.contains("ended before all replies"), "{told}");

    // Without the systems behind it the menu says little, the log why.
    let text = fs::read_to_string(file).unwrap();
    let gone = free_port();
    let away = place.folder.write(
        "away/menu.yaml",
        &text.replace(
            &format!("127.0.0.1:{}", place.backend.port()),
            &format!("127.0.0.1:{gone}"),
        ),
    );
    let result = output(&[&["ussd", away.to_str().unwrap()], &replies[..6]].concat());
    let told = String::from_utf8_lossy(&result.stderr).into_owned();
    let why = "warn: a session of a menu has failed at its screen `confirm`: \
               the back end cannot be reached (confirm.2 (http): Connection refused";
    assert!(told.starts_with(why), "{told}");

    // By lines, to an engine that runs; the network ends the session.
    let engine = place.run();
    let mut child = command();
    child.args([
        "ussd",
        file,
        "--url",
        &format!("http://127.0.0.1:{}", place.port),
    ]);
    child
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input
        .write_all(b"1\n:repeat\n7000\n:dial *123#\n1\n")
        .unwrap();
    drop(input);
    let result = child.wait_with_output().unwrap();
    let text = String::from_utf8(result.stdout).unwrap();
    assert_eq!(
        text,
        "> *123#\nAirtime\n1. Buy\n0. Exit\n> 1\nHow much?\nHow much?\n> 7000\n\
         Please try again.\nHow much?\n> *123#\nAirtime\n1. Buy\n0. Exit\n> 1\nHow much?\n"
    );
    assert_eq!(result.status.code(), Some(1), "the session has not ended");
    // Beside one that runs no other one starts.
    let result = output(&["ussd", file, "--reply", "0"]);
    let told = String::from_utf8_lossy(&result.stderr).into_owned();
    assert!(
        told.contains("listens on") && told.contains("--url"),
        "{told}"
    );
    engine.stop();
}

#[test]
fn what_cannot_be_tried_is_said() {
    let folder = TempDir::new();
    let flow = folder.write(
        "flow.yaml",
        "flow: a\nfrom: { http: GET :8080/ }\nsteps: [ { reply: {} } ]\n",
    );
    let result = output(&["ussd", flow.to_str().unwrap()]);
    let told = String::from_utf8_lossy(&result.stderr).into_owned();
    assert!(told.contains("the files have no menu"), "{told}");
    let two = format!(
        "{}---\n{}",
        menu(8080, 8081, "hubtel"),
        menu(8081, 8081, "hubtel").replace("menu: airtime", "menu: other")
    );
    let two = folder.write("two.yaml", &two);
    let result = output(&["ussd", two.to_str().unwrap()]);
    let told = String::from_utf8_lossy(&result.stderr).into_owned();
    assert!(told.contains("--menu: airtime, other"), "{told}");
}
