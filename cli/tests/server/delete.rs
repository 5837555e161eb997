//! A mirror's deletion that dies before its states are gone.

use heliostat_core::coordinator::StateRecord;
use heliostat_io::admin::{AdminError, DeleteOptions};

use super::align::STOPPED;
use super::child::{in_step, run, until};
use super::stop::{states, write_states};

/// Its name and topics may be another mirror's at once: nothing of the first one counts for that.
#[test]
fn what_a_deleted_mirror_has_left_is_forgotten_at_the_next_start() {
    let (source, stopped) = &*STOPPED;
    let home = stopped.copy();
    let server = home.start_to_die_at("delete.decided");
    let mut client = server.client();
    let deleted = run(client.delete_cluster_mirror("m", DeleteOptions::default()));
    assert!(matches!(deleted, Err(AdminError::Uncertain { .. })), "{deleted:?}");
    server.dies("delete.decided");
    let left = states(&home);
    assert_eq!((left.states.len(), left.last_mirrored.len()), (3, 3));

    let server = home.start();
    assert_eq!(run(server.client().list_cluster_mirrors(true)).unwrap(), []);
    server.stop();
    let left = states(&home);
    assert_eq!((left.states.len(), left.last_mirrored.len()), (0, 0));

    // Nothing is known to be common: the logs begin anew, and that too may be cut short.
    let server = home.start_to_die_at("truncation.reset");
    let mut client = server.client();
    run(source.mirror(&mut client, &["t"]));
    server.dies("truncation.reset");
    let server = home.start();
    run(until(&mut server.client(), in_step));
    server.stop();
    for partition in ["t-0", "t-1", "t-2"] {
        assert!(home.bytes(partition) == source.bytes(partition), "{partition} differs");
    }
}

/// A tombstone of a state is durable, that of the position is not.
#[test]
fn a_position_of_a_deleted_mirror_without_a_state_is_forgotten_too() {
    let (_, stopped) = &*STOPPED;
    let home = stopped.copy();
    let server = home.start();
    run(server.client().delete_cluster_mirror("m", DeleteOptions::default())).unwrap();
    server.stop();
    let last = states(stopped).last_mirrored;
    let records: Vec<_> =
        last.into_iter().map(|(key, last)| StateRecord::LastMirrored(key, Some(last))).collect();
    write_states(&home, &records);
    assert_eq!(states(&home).last_mirrored.len(), 3);
    home.start().stop();
    assert_eq!(states(&home).last_mirrored.len(), 0);
}
