//! Instructions of the hot functions under callgrind; `src/bin/counts.rs` runs and judges them.

#![expect(missing_docs, unused_qualifications, reason = "gungraun's macros make such items")]

use std::hint::black_box;

use gungraun::{
    Callgrind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main,
};
use heliostat_hot::{Answer, Append, Epochs, Index, Mirror, Run, Session, Size, verify};

const TUNABLES: &str =
    "glibc.cpu.x86_rep_movsb_threshold=4294967296:glibc.cpu.x86_rep_stosb_threshold=4294967296";

#[library_benchmark]
#[bench::partitions_8_of_1mib(Answer::new(8, 1 << 20))]
#[bench::partitions_1000_of_1kib(Answer::new(1_000, 1 << 10))]
fn decode(mut answer: Answer) -> (usize, Answer) {
    let partitions = black_box(&mut answer).decode();
    (partitions, answer)
}

#[library_benchmark]
#[bench::batches_of_one_100b_record(Run::new(Size::Tiny, 0))]
#[bench::batches_of_16kib(Run::new(Size::Usual, 0))]
#[bench::batch_of_1mib(Run::new(Size::Large, 0))]
fn verify_run(run: Run) -> (usize, Run) {
    (verify(black_box(&run)), run)
}

#[library_benchmark]
#[bench::batches_of_one_100b_record(Append::new(Size::Tiny))]
#[bench::batches_of_16kib(Append::new(Size::Usual))]
#[bench::batch_of_1mib(Append::new(Size::Large))]
fn append(mut log: Append) -> (usize, Append) {
    (black_box(&mut log).append(), log)
}

#[library_benchmark]
#[bench::entries(Index::new())]
fn index(mut index: Index) -> (usize, Index) {
    (black_box(&mut index).enter(), index)
}

#[library_benchmark]
#[bench::lookups_1000_in_100_epochs(Epochs::new())]
fn epochs(epochs: Epochs) -> (i64, Epochs) {
    (black_box(&epochs).look_up(), epochs)
}

#[library_benchmark]
#[bench::opened_with_1000_partitions(Session::opening())]
#[bench::moved_24_of_1000_partitions(Session::moved(24))]
fn session(mut session: Session) -> (usize, Session) {
    (black_box(&mut session).build().len(), session)
}

#[library_benchmark]
#[bench::batches_of_one_100b_record(Mirror::new(Size::Tiny, 1))]
#[bench::batches_of_16kib(Mirror::new(Size::Usual, 1))]
#[bench::batch_of_1mib(Mirror::new(Size::Large, 1))]
fn whole_path(mut mirror: Mirror) -> (usize, Mirror) {
    (black_box(&mut mirror).answer(), mirror)
}

library_benchmark_group!(
    name = hot,
    benchmarks = [decode, verify_run, append, index, epochs, session, whole_path]
);

main!(
    // The caches of a simulated machine are nobody's: instructions only. `rep movsb` and `rep
    // stosb` would count for each byte.
    config = LibraryBenchmarkConfig::default()
        .tool(Callgrind::with_args(["--cache-sim=no"]))
        .env("GLIBC_TUNABLES", TUNABLES),
    library_benchmark_groups = hot
);
