//! The driver of SQLite: what a failure within a transaction leaves of it.

use connectors::sql::Dialect::Sqlite;
use connectors::sql::error::Class;
use connectors::sql::{Database, Place};
use testkit::TempDir;

use crate::sql_session::{change, connect, database, failure, on_worker, rows};

#[test]
fn after_a_failure_the_database_says_whether_the_transaction_is_open() {
    let folder = TempDir::new();
    on_worker(async {
        let file = Database {
            place: Place::File(folder.path().join("shop.db")),
            ..database(Sqlite, 0, ("", ""))
        };
        let mut session = connect(file).await;
        let session = &mut *session;
        change(session, "create table t (id integer primary key)").await;
        session.begin(None).await.unwrap();
        change(session, "insert into t values (1)").await;
        // The statement alone is rolled back.
        let error = failure(session, "insert into t values (1)").await;
        assert_eq!((error.class, session.is_aborted()), (Class::Unique, false));
        // All of the transaction is; what comes now would be committed at once.
        let error = failure(session, "insert or rollback into t values (1)").await;
        assert_eq!((error.class, session.is_aborted()), (Class::Unique, true));
        session.rollback().await.unwrap();
        assert!(!session.is_aborted() && !session.is_broken());
        let count = "select count(*) n from t";
        assert_eq!(rows(session, count, &[]).await, r#"{"n":0}"#);
    });
}
