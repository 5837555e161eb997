//! How keys and answers change what is shown.

use heliostat_io::admin::FiguresQuery;
use proptest::prelude::*;

use super::super::model::{Mode, Place, Sort};
use super::*;

#[test]
fn what_does_not_get_on_comes_first() {
    let model = full();
    let names = names(&model);
    assert_eq!(names[..2], ["frankfurt-west-to-stockholm", "site-11"]);
    assert_eq!(names[2..6], ["site-03", "site-19", "site-12", "site-01"], "by lag, then by name");
    assert_eq!(model.selected(), Some(0));
}

#[test]
fn each_column_sorts_and_rows_that_are_alike_keep_the_order_of_their_names() {
    let mut model = full();
    let mut firsts = Vec::new();
    loop {
        for is_reversed in [false, true] {
            assert_eq!(model.is_reversed, is_reversed);
            let rows = model.visible();
            firsts.push((model.sort, rows[0].name.clone()));
            if model.sort != Sort::Name {
                // Twenty-five mirrors have no lag, no retries and the same state.
                let alike: Vec<_> = rows.iter().filter(|row| row.lag == Some(0)).collect();
                let by_name = alike.is_sorted_by_key(|row| row.name.as_str());
                assert!(by_name || model.sort == Sort::Rate, "{:?}", model.sort);
            }
            model.press(Key::Char('r'));
        }
        model.press(Key::Char('s'));
        if model.sort == Sort::Trouble {
            break;
        }
    }
    let frankfurt = "frankfurt-west-to-stockholm";
    assert_eq!(
        firsts,
        [
            (Sort::Trouble, frankfurt),
            (Sort::Trouble, "site-01"),
            (Sort::Name, frankfurt),
            (Sort::Name, "site-30"),
            (Sort::State, frankfurt),
            (Sort::State, "site-01"),
            (Sort::Lag, "site-03"),
            (Sort::Lag, "site-01"),
            (Sort::LagBytes, "site-03"),
            (Sort::LagBytes, "site-01"),
            (Sort::LagTime, frankfurt),
            (Sort::LagTime, "site-01"),
            (Sort::Rate, "site-30"),
            (Sort::Rate, "site-01"),
            (Sort::Binds, "site-19"),
            (Sort::Binds, "site-01"),
            (Sort::Retries, frankfurt),
            (Sort::Retries, "site-01"),
        ]
        .map(|(sort, name)| (sort, name.to_owned()))
    );
}

#[test]
fn partitions_are_sorted_as_numbers() {
    let mut model = in_partitions();
    let many = |_| {
        let mut answer = partitions(100);
        let all = &mut answer.mirrors[0].topics[0].partitions;
        *all = [10, 9, 100, 0]
            .map(|partition_index| DescribedMirrorPartition {
                partition_index,
                ..DescribedMirrorPartition::default()
            })
            .to_vec();
        answer
    };
    look(&mut model, many);
    assert_eq!(names(&model), ["0", "9", "10", "100"]);
}

#[test]
fn what_binds_is_told_of_who_lags() {
    let model = full();
    let binds = |name: &str| {
        let row = model.visible().into_iter().find(|row| row.name == name).cloned().unwrap();
        row.busy.unwrap().binds.map_or("-".to_owned(), |it| it.to_string())
    };
    let names = ["site-01", "site-03", "site-11", "site-12", "site-19"];
    assert_eq!(names.map(binds), ["-", "network", "source", "throttle", "CPU"]);
}

#[test]
fn the_filter_looks_at_names_states_and_reasons_in_any_case() {
    let mut model = full();
    for (text, found) in
        [("SITE-1", 10), ("truncation", 1), ("Out of Range", 1), ("nothing has this", 0), ("", 30)]
    {
        type_in(&mut model, "/");
        assert_eq!(model.mode, Mode::Filter);
        type_in(&mut model, text);
        model.press(Key::Enter);
        assert_eq!(model.visible().len(), found, "{text}");
        assert_eq!(model.selected().is_some(), found > 0);
        model.press(Key::Escape);
        assert_eq!(model.current().filter, "");
    }
    type_in(&mut model, "/sq");
    assert!(!model.is_over, "q is a letter there");
    model.press(Key::Backspace);
    assert_eq!(model.current().filter, "s");
    model.press(Key::Escape);
    assert_eq!((model.mode, model.current().filter.as_str()), (Mode::Table, ""));
}

#[test]
fn only_what_fails_is_left_and_all_comes_back() {
    let mut model = full();
    model.press(Key::Char('f'));
    assert_eq!(names(&model), ["frankfurt-west-to-stockholm", "site-11"]);
    model.press(Key::Char('f'));
    assert_eq!(model.visible().len(), 30);
}

#[test]
fn enter_goes_in_and_escape_back_to_the_same_row() {
    let mut model = full();
    model.press(Key::Down);
    model.press(Key::Down);
    let chosen = names(&model)[2].clone();
    model.press(Key::Enter);
    assert_eq!(model.current().place, Place::Topics { mirror: chosen.clone() });
    let FiguresQuery::Topics { mirror, .. } = model.query() else { panic!("topics are asked for") };
    assert_eq!(mirror, chosen);
    // Nothing is known of it yet, so there is nothing to go into.
    model.press(Key::Enter);
    assert_eq!(model.current().place, Place::Topics { mirror: chosen.clone() });
    look(&mut model, topics);
    model.press(Key::Enter);
    let topic = "orders-eu".to_owned();
    assert_eq!(model.current().place, Place::Partitions { mirror: chosen.clone(), topic });
    model.press(Key::Enter);
    look(&mut model, partitions);
    model.press(Key::Enter);
    assert_eq!(model.visible().len(), 4, "there is nothing below partitions");
    model.press(Key::Escape);
    assert_eq!(names(&model)[model.selected().unwrap()], "orders-eu");
    model.press(Key::Escape);
    assert_eq!(names(&model)[model.selected().unwrap()], chosen);
    model.press(Key::Escape);
    assert_eq!(model.current().place, Place::Mirrors);
}

#[test]
fn an_answer_to_what_was_asked_before_comes_to_nothing() {
    let mut model = full();
    let asked = model.query();
    model.press(Key::Enter);
    model.take(&asked, &mirrors(102), Duration::from_secs(2));
    assert!(model.visible().is_empty());
    // But the host is there.
    model.miss("gone", Duration::from_secs(3), Duration::from_secs(4));
    model.take(&asked, &mirrors(103), Duration::from_secs(3));
    assert_eq!(model.silence, None);
}

#[test]
fn the_selection_keeps_to_its_row_and_to_its_place_if_that_goes() {
    let mut model = full();
    model.press(Key::End);
    let last = names(&model)[29].clone();
    model.press(Key::Char('r'));
    assert_eq!(names(&model)[model.selected().unwrap()], last);
    model.press(Key::Char('r'));
    let mut fewer = mirrors(102);
    fewer.mirrors.retain(|it| it.mirror_name != last);
    model.take(&model.query(), &fewer, Duration::from_secs(2));
    assert_eq!(model.selected(), Some(28));
    model.page = 10;
    model.press(Key::PageUp);
    assert_eq!(model.selected(), Some(18));
    model.press(Key::Home);
    model.press(Key::Up);
    assert_eq!(model.selected(), Some(0));
}

/// Who has chosen nothing sees what is worst, whatever comes to be that.
#[test]
fn without_a_choice_the_first_row_is_selected() {
    let mut model = full();
    let mut worse = mirrors(102);
    let site = &mut worse.mirrors[21];
    site.figures.given_up = 1;
    site.figures.lag_ms = i64::MAX;
    model.take(&model.query(), &worse, Duration::from_secs(2));
    assert_eq!(names(&model)[model.selected().unwrap()], "site-22");
}

#[test]
fn figures_stay_while_nobody_answers_and_since_when_is_known() {
    let mut model = full();
    model.miss("a\nb", Duration::from_secs(5), Duration::from_secs(6));
    model.miss("c\u{1b}[2J", Duration::from_secs(6), Duration::from_secs(8));
    let silence = model.silence.clone().unwrap();
    assert_eq!((silence.since, silence.next_try), (Duration::from_secs(5), Duration::from_secs(8)));
    assert_eq!(silence.error, "c [2J");
    assert_eq!(model.visible().len(), 30);
}

#[test]
fn a_host_that_starts_again_is_no_negative_rate() {
    let mut model = full();
    model.take(&model.query(), &mirrors(1), Duration::from_secs(2));
    assert!(model.visible().iter().all(|row| row.rate.is_none() && row.busy.is_none()));
    model.take(&model.query(), &mirrors(2), Duration::from_secs(3));
    let fast = model.visible().into_iter().find(|row| row.name == "site-30").cloned();
    assert_eq!(fast.unwrap().rate, Some(36e6));
}

fn key() -> impl Strategy<Value = Key> {
    prop_oneof![
        3 => prop::sample::select(vec![
            Key::Up, Key::Down, Key::PageUp, Key::PageDown, Key::Home, Key::End, Key::Enter,
            Key::Escape, Key::Backspace,
        ]),
        2 => prop::sample::select("srf/?gGjk1".chars().collect::<Vec<_>>()).prop_map(Key::Char),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is pressed, at whatever size: there is a frame, and its selection is on it.
    #[test]
    fn every_key_leaves_a_frame(
        keys in prop::collection::vec(key(), 0..40),
        width in 1_u16..220,
        height in 1_u16..60,
    ) {
        use ratatui::buffer::Buffer;
        use ratatui::layout::Rect;

        let mut model = full();
        for key in keys {
            model.press(key);
            let place = model.current().place.clone();
            match place {
                Place::Mirrors => look(&mut model, mirrors),
                Place::Topics { .. } => look(&mut model, topics),
                Place::Partitions { .. } => look(&mut model, partitions),
            }
            let area = Rect::new(0, 0, width, height);
            let mut buffer = Buffer::empty(area);
            model.page = super::super::draw::draw(&mut buffer, area, &model, at(1));
            prop_assert!(model.page > 0);
            prop_assert_eq!(model.selected().is_some(), !model.visible().is_empty());
        }
    }
}
