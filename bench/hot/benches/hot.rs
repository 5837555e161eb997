//! Times of the hot functions, on the same inputs as `counts.rs`.

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use heliostat_hot::{Answer, Append, Epochs, Index, LOOKUPS, Mirror, Run, Session, Size, verify};

const SIZES: [(&str, Size); 3] =
    [("one-100B-record", Size::Tiny), ("16KiB", Size::Usual), ("1MiB", Size::Large)];

fn elements(count: usize) -> Throughput {
    Throughput::Elements(u64::try_from(count).unwrap_or(0))
}

/// Of the batches of a run: figures are for each of them.
fn of_batches(size: Size) -> Throughput {
    elements(Run::new(size, 0).batches)
}

fn decode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode");
    for (partitions, bytes) in [(8_u16, 1 << 20), (1_000, 1 << 10)] {
        let mut answer = Answer::new(i32::from(partitions), bytes);
        group.throughput(elements(usize::from(partitions)));
        group.bench_function(BenchmarkId::from_parameter(partitions), |bencher| {
            bencher.iter(|| black_box(&mut answer).decode());
        });
    }
    group.finish();
}

fn batches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("verify");
    for (name, size) in SIZES {
        let run = Run::new(size, 0);
        group.throughput(of_batches(size));
        group.bench_function(name, |bencher| bencher.iter(|| verify(black_box(&run))));
    }
    group.finish();
    let mut group = criterion.benchmark_group("append");
    for (name, size) in SIZES {
        group.throughput(of_batches(size));
        group.bench_function(name, |bencher| {
            let setup = || Append::new(size);
            bencher.iter_batched_ref(setup, Append::append, BatchSize::PerIteration);
        });
    }
    group.finish();
    let mut group = criterion.benchmark_group("whole-path");
    for (name, size) in SIZES {
        group.throughput(of_batches(size));
        group.bench_function(name, |bencher| {
            let setup = || Mirror::new(size, 1);
            bencher.iter_batched_ref(setup, Mirror::answer, BatchSize::PerIteration);
        });
    }
    group.finish();
}

fn look_ups(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("look-ups");
    let entries = Index::new().enter();
    group.throughput(elements(entries));
    group.bench_function("index-entries", |bencher| {
        bencher.iter_batched_ref(Index::new, Index::enter, BatchSize::SmallInput);
    });
    let epochs = Epochs::new();
    group.throughput(Throughput::Elements(LOOKUPS.unsigned_abs()));
    group.bench_function("epochs", |bencher| bencher.iter(|| black_box(&epochs).look_up()));
    group.finish();
}

fn sessions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("session");
    let mut build = |name, setup: fn() -> Session| {
        group.bench_function(name, |bencher| {
            bencher.iter_batched_ref(setup, Session::build, BatchSize::SmallInput);
        });
    };
    build("opened-with-1000-partitions", Session::opening);
    build("moved-24-of-1000-partitions", || Session::moved(24));
    group.finish();
}

criterion_group!(benches, decode, batches, look_ups, sessions);
criterion_main!(benches);
