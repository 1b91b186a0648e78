//! What whoever embeds the crate can do with its futures.

use spot_core::migrator::Which;

use super::*;

fn assert_send<T: Send>(_: T) {}

#[test]
fn all_that_is_awaited_can_be_spawned_on_a_runtime_of_many_threads() {
    let model = model::WorldBuilder::default().spot(1).build();
    let (process, stop) = (model.process(), Stop::default());
    let ports = process.ports_alone(Arc::new(Notes::default()));
    let migrator = Migrator::new(ports.clone(), planned());
    assert_send(migrator.run(&stop));
    assert_send(migrator.once(&stop));
    assert_send(migrator.migrate(&stop));
    assert_send(migrator.recover(&stop));
    assert_send(migrator.release(&Which::All));
    assert_send(migrator.pause(true));
    let hold = Hold::default();
    assert_send(hold.begins(now(&model)));
    let interruptions = Interruptions::new(ports, process.notices(), settings(), hold);
    assert_send(interruptions.run(&stop));
}
