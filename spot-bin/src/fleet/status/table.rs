//! The status as tables.

use std::fmt::Write as _;

use comfy_table::{Table, presets};

use super::{Capacity, Cost, Said, Status};

/// All of it.
pub(super) fn text(status: &Status) -> String {
    let Status { pool, cluster, capacity, fleets, machines, cost, disagreements, said } = status;
    let Capacity { target, fulfilled, joined, ready, file, floor } = capacity;
    let units = |known: &Option<u32>| known.map_or_else(|| "an unknown number".to_owned(), |units| units.to_string());
    let (joined, ready) = (units(joined), units(ready));
    let mut text = format!(
        "Pool {pool} of cluster {cluster}: {fulfilled} of {target} units launched, {joined} joined, {ready} ready; the \
         file wants {file}, never below {floor}.\n\n"
    );
    if fleets.is_empty() {
        text.push_str("There is no fleet.\n");
    } else {
        let rows = fleets.iter().map(|fleet| {
            let Some(activity) = &fleet.activity else { return (fleet, fleet.state.clone()) };
            (fleet, format!("{}, {activity}", fleet.state))
        });
        let rows = rows.map(|(fleet, state)| {
            let of_file = if fleet.current { "yes" } else { "no" };
            vec![fleet.id.clone(), state, fleet.target.to_string(), fleet.fulfilled.to_string(), of_file.to_owned()]
        });
        table(&mut text, &["FLEET", "STATE", "TARGET", "FULFILLED", "AS THE FILE SAYS"], rows);
    }
    if !machines.is_empty() {
        text.push('\n');
        let columns =
            ["INSTANCE", "TYPE", "ZONE", "STATE", "WEIGHT", "NODE", "READY", "SPOT $/h", "ON-DEMAND $/h", "SAVING"];
        let rows = machines.iter().map(|row| {
            let ready = row.ready.map_or_else(unknown, |ready| if ready { "yes" } else { "no" }.to_owned());
            let [spot, on_demand, saving] = cells(&row.cost);
            vec![
                row.instance.clone(),
                row.instance_type.clone(),
                row.zone.clone(),
                row.state.clone(),
                row.weight.map_or_else(unknown, |weight| weight.to_string()),
                row.node.clone().unwrap_or_else(unknown),
                ready,
                spot,
                on_demand,
                saving,
            ]
        });
        table(&mut text, &columns, rows);
        if let Cost { spot: Some(spot), on_demand: Some(on_demand), saving: Some(saving) } = cost {
            let percent = saving * 100.0;
            let _written = writeln!(
                text,
                "\nTogether {spot:.4} $/h instead of {on_demand:.4} $/h: {percent:.0} % less, where both are known."
            );
        }
    }
    if !disagreements.is_empty() {
        text.push_str("\nWhat disagrees:\n");
        for disagreement in disagreements {
            let _written = writeln!(text, "  {disagreement}");
        }
    }
    if !said.is_empty() {
        text.push_str("\nWhat the fleets said in the last hour:\n");
        for Said { fleet, at, explained, words } in said {
            let _written = writeln!(text, "  {at} {fleet}: {explained} ({words})");
        }
    }
    text
}

fn cells(cost: &Cost) -> [String; 3] {
    let dollars = |price: Option<f64>| price.map_or_else(unknown, |price| format!("{price:.4}"));
    let saving = cost.saving.map_or_else(unknown, |saving| format!("{:.0} %", saving * 100.0));
    [dollars(cost.spot), dollars(cost.on_demand), saving]
}

fn unknown() -> String {
    "-".to_owned()
}

fn table(text: &mut String, header: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header.to_vec()).add_rows(rows);
    for line in table.lines() {
        // Writing into a String has no way to fail.
        let _written = writeln!(text, "{}", line.trim());
    }
}
