//! `intertie keys`: what is printed can be used, and what is written shows none of it.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::SystemTime;

use access::api_keys::ApiKeys;
use access::basic::Users;
use testkit::TempDir;

use crate::support::command;

fn keys(arguments: &[&str], file: &Path, input: &str) -> Output {
    let mut command = command();
    command.arg("keys").args(arguments).arg("--file").arg(file);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    // One that refuses its arguments has not waited for it.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// What it prints.
fn done(arguments: &[&str], file: &Path, input: &str) -> String {
    let output = keys(arguments, file, input);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Why it refuses, with the file as it was.
fn refused(arguments: &[&str], file: &Path, input: &str) -> String {
    let before = fs::read(file).ok();
    let output = keys(arguments, file, input);
    assert!(!output.status.success() && output.stdout.is_empty());
    assert_eq!(fs::read(file).ok(), before);
    String::from_utf8(output.stderr).unwrap()
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap().as_secs()
}

fn mode(file: &Path) -> u32 {
    fs::metadata(file).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_key_is_added_listed_and_revoked() {
    let folder = TempDir::new();
    let file = folder.path().join("partners.keys");
    let shop = [
        "add",
        "--id",
        "shop",
        "--scope",
        "orders.write",
        "--scope",
        "orders.read",
    ];
    let shop = [&shop[..], &["--plan", "gold", "--expires", "90d"]].concat();
    let before = now();
    let printed = done(&shop, &file, "");
    let key = printed.strip_suffix('\n').unwrap();
    assert!(key.starts_with("itk_") && !key.contains('\n'), "{printed}");
    assert_eq!(mode(&file), 0o600);
    let text = fs::read_to_string(&file).unwrap();
    assert!(!text.contains(key) && !text.contains(&key[4..]), "{text}");
    let known = ApiKeys::parse(&text).unwrap();
    let entry = known.find(key.as_bytes(), now()).unwrap();
    assert_eq!(entry.id, "shop");
    assert_eq!(entry.scopes, ["orders.write", "orders.read"]);
    assert_eq!(entry.plan.as_deref(), Some("gold"));
    let days = 90 * 24 * 3600;
    assert!((before + days..=now() + days).contains(&entry.expires.unwrap()));

    // A file that somebody has edited keeps its comments, its last line and its group.
    fs::write(&file, format!("# partners\n\n{}", text.trim_end())).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
    let desk = done(&["add", "--id", "desk"], &file, "");
    assert_ne!(desk, printed);
    assert_eq!(mode(&file), 0o640);
    let both = fs::read_to_string(&file).unwrap();
    assert!(both.starts_with("# partners\n\n{\"id\":\"shop\""), "{both}");
    assert_eq!(ApiKeys::parse(&both).unwrap().entries().len(), 2);

    let table = done(&["list"], &file, "");
    let lines: Vec<&str> = table.lines().collect();
    assert!(
        lines[0].starts_with("ID    SCOPES                    PLAN  CREATED"),
        "{table}"
    );
    assert!(
        lines[1].starts_with("shop  orders.write orders.read  gold  20"),
        "{table}"
    );
    assert!(
        lines[2].starts_with("desk  -                         -     20"),
        "{table}"
    );
    assert!(lines[2].ends_with("  -"), "{table}");
    let json = done(&["list", "--json"], &file, "");
    let hash = &text[text.find("sha256:").unwrap() + 7..][..64];
    for shown in [&table, &json] {
        assert!(
            !shown.contains(hash) && !shown.contains("sha256"),
            "{shown}"
        );
    }
    assert!(
        json.lines().next().unwrap().contains("\"expired\":false"),
        "{json}"
    );

    assert!(refused(&["add", "--id", "shop"], &file, "").contains("already"));
    assert_eq!(done(&["revoke", "--id", "shop"], &file, ""), "");
    let left = fs::read_to_string(&file).unwrap();
    assert!(left.starts_with("# partners\n\n{\"id\":\"desk\""), "{left}");
    assert!(refused(&["revoke", "--id", "shop"], &file, "").contains("no key of `shop`"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn what_cannot_be_a_key_is_refused() {
    let folder = TempDir::new();
    let file = folder.path().join("partners.keys");
    for (arguments, part) in [
        (&["add", "--id", "a b"][..], "without spaces"),
        (&["add", "--id", "a", "--scope", "b c"], "`scopes`"),
        (&["add", "--id", "a", "--expires", "90"], "no unit"),
        (
            &["add", "--id", "a", "--expires", "5ms"],
            "a second at least",
        ),
        (&["revoke", "--id", "a"], "there is no file"),
        (&["list"], "there is no file"),
    ] {
        let errors = refused(arguments, &file, "");
        assert!(errors.contains(part), "{errors}");
    }
    let broken = folder.write("broken.keys", "# one\nx\n");
    for arguments in [
        &["add", "--id", "a"][..],
        &["revoke", "--id", "a"],
        &["list"],
    ] {
        let errors = refused(arguments, &broken, "");
        assert!(errors.contains("line 2"), "{errors}");
    }
}

#[test]
fn an_expired_key_is_marked() {
    let folder = TempDir::new();
    let line = format!(
        r#"{{"id":"old","hash":"sha256:{}","expires":1}}"#,
        "a0".repeat(32)
    );
    let file = folder.write("old.keys", &line);
    assert!(done(&["list"], &file, "").contains("1970-01-01T00:00:01Z (expired)"));
    assert!(done(&["list", "--json"], &file, "").contains("\"expired\":true"));
}

/// None of the keys that were printed is missing: each command sees what the one before has
/// written.
#[test]
fn many_at_once_lose_no_key() {
    let folder = TempDir::new();
    let file = folder.path().join("partners.keys");
    let printed: Vec<String> = std::thread::scope(|scope| {
        let file = &file;
        let add = |number: u32| {
            let id = format!("shop{number}");
            scope.spawn(move || done(&["add", "--id", &id], file, ""))
        };
        let all: Vec<_> = (0..12).map(add).collect();
        all.into_iter().map(|it| it.join().unwrap()).collect()
    });
    let known = ApiKeys::parse(&fs::read_to_string(&file).unwrap()).unwrap();
    for key in printed {
        assert!(known.find(key.trim_end().as_bytes(), now()).is_some());
    }
}

#[test]
fn a_key_that_cannot_be_printed_is_no_success() {
    let folder = TempDir::new();
    let file = folder.path().join("partners.keys");
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = command();
    command
        .args(["keys", "add", "--id", "shop", "--file"])
        .arg(&file);
    let output = command.stdout(full).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success() && errors.contains("revoke `shop`"),
        "{errors}"
    );
}

#[test]
fn users_have_passwords_that_are_nowhere_to_be_seen() {
    let folder = TempDir::new();
    let old = "old:$2y$05$abcdefghijklmnopqrstuuHNbAKRhpaujgo33bRWs.NLUTJO3lOy2";
    let file = folder.write("users", &format!("# people\n{old}"));
    let is = |name: &str, password: &str| {
        let users = Users::parse(&fs::read_to_string(&file).unwrap()).unwrap();
        let candidate = users.candidate(name.as_bytes()).unwrap();
        candidate.check(password.as_bytes()).unwrap().is_some()
    };
    assert_eq!(
        done(&["user", "--name", "ann"], &file, "correct horse\n"),
        ""
    );
    assert!(is("ann", "correct horse") && is("old", "correct horse") && !is("ann", "correct"));
    let text = fs::read_to_string(&file).unwrap();
    let begin = format!("# people\n{old}\nann:$argon2id$v=19$m=19456,t=2,p=1$");
    assert!(
        text.starts_with(&begin) && !text.contains("horse"),
        "{text}"
    );

    let scoped = [
        "user",
        "--name",
        "ann",
        "--scope",
        "orders.read",
        "--plan",
        "free",
    ];
    done(&scoped, &file, "battery staple");
    done(&["user", "--name", "ann"], &file, "battery staples\r\n");
    let users = Users::parse(&fs::read_to_string(&file).unwrap()).unwrap();
    let ann = users.entries().find(|it| it.id == "ann").unwrap();
    assert_eq!(
        (&*ann.scopes, ann.plan.as_deref()),
        (&["orders.read".to_owned()][..], Some("free"))
    );
    assert!(is("ann", "battery staples") && !is("ann", "battery staple"));

    for (name, input, part) in [
        ("eve", "", "8 characters"),
        ("eve", "short\n", "8 characters"),
        ("eve", "two lines\nof them\n", "more than one line"),
        ("eve", "with\ta tab", "control characters"),
        ("e:ve", "correct horse", "without `:`"),
    ] {
        let errors = refused(&["user", "--name", name], &file, input);
        assert!(
            errors.contains(part) && !errors.contains("horse"),
            "{errors}"
        );
    }
    done(&["user", "--name", "old", "--remove"], &file, "");
    assert!(!fs::read_to_string(&file).unwrap().contains("old:"));
    assert!(refused(&["user", "--name", "old", "--remove"], &file, "").contains("no user `old`"));
}
