//! What `baton plan` says, and what the reload then does.

use super::*;

#[test]
fn a_plan_says_what_the_reload_does() {
    lab(2, |lab| {
        let folder = tempfile::tempdir().unwrap();
        // With root, so that another engine could be had.
        let given_up = format!("user nobody\nchroot {}\n", folder.path().display());
        let of = |weights: &[u32]| text(lab, folder.path(), weights, "flush").replace(&given_up, "");
        let right = of(&[2, 1]);
        let proxy = start(lab, &right);
        lab.director.inside(|| {
            let plan = proxy.plan();
            assert!(plan.accepted && plan.plan.is_empty(), "{plan:#?}");
            // Another weight.
            proxy.write(&of(&[0, 1]));
            let plan = proxy.plan();
            let step = |step: &String| step.contains("weight 0, until now direct, weight 2");
            assert!(plan.accepted && plan.plan.kernel.iter().any(step), "{plan:#?}");
            proxy.reload();
            let again = proxy.plan();
            assert!(again.plan.kernel.is_empty(), "{again:#?}");
            // Another name.
            proxy.write(&of(&[0, 1]).replace("server one ", "server first "));
            let plan = proxy.plan().plan;
            assert!(plan.changes.len() == 4 && plan.changes.iter().all(|one| one.impact.is_none()), "{plan:#?}");
            // An engine that this machine may lack.
            proxy.write(&right.replace("engine xdp", "engine ipvs"));
            let (plan, reload) = (proxy.plan(), proxy.reload());
            assert_eq!(plan.accepted, reload.accepted, "{plan:#?}{reload:#?}");
        });
    });
}

#[test]
fn a_server_on_the_director_is_told_of_from_the_start() {
    lab(1, |lab| {
        let folder = tempfile::tempdir().unwrap();
        let with = text(lab, folder.path(), &[1], "flush").replacen(
            "server one",
            "server sorry 127.0.0.1 backup\nserver one",
            1,
        );
        let proxy = start(lab, &with);
        let words = "server 127.0.0.1:80: the engine xdp cannot send to this machine itself";
        until("it is a warning", || proxy.said().contains(words));
        lab.director.inside(|| {
            let plan = proxy.plan();
            assert!(plan.accepted && plan.plan.kernel.iter().any(|line| line.contains(words)), "{plan:#?}");
        });
    });
}
