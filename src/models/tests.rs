use super::*;

const ONE: Asked = Asked {
    service: Service::Rc,
    ops: SendOps::ALL,
    max_send_wr: 1,
    max_recv_wr: 1,
    max_send_sge: 1,
    max_recv_sge: 1,
    max_inline: 0,
    receives: true,
};

#[test]
fn every_model_is_found_by_its_name() {
    for model in Model::ALL {
        assert_eq!(Model::named(model.name), Ok(model));
    }
    let names: std::collections::HashSet<_> = Model::ALL.iter().map(|model| model.name).collect();
    assert_eq!(names.len(), Model::ALL.len());
    assert_eq!(Model::named("mlx4"), Err(UnknownModel));
}

#[test]
fn no_queue_pair_gets_less_than_it_asked_for() {
    let sizes = [1, 2, 3, 7, 16, 31, 100, 500, 1000, 4000, 8000, 30_000, 100_000];
    for model in Model::ALL {
        for max_send_wr in sizes {
            for max_recv_wr in sizes {
                for (max_send_sge, max_recv_sge) in [(1, 1), (2, 5), (6, 6), (13, 3), (30, 30)] {
                    for max_inline in [0, 1, 8, 9, 39, 40, 96, 101, 220, 512, 828] {
                        let asked =
                            Asked { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline, ..ONE };
                        let Ok(granted) = model.queue_pair(&asked) else { continue };
                        assert!(
                            granted.max_send_wr >= max_send_wr
                                && granted.max_recv_wr >= max_recv_wr
                                && granted.max_send_sge >= max_send_sge
                                && granted.max_recv_sge >= max_recv_sge
                                && granted.max_inline >= max_inline,
                            "{}: {asked:?} got {granted:?}",
                            model.name
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn no_other_queue_gets_less_than_it_asked_for() {
    for model in Model::ALL {
        for entries in [1, 2, 3, 100, 1023, 1024, 4095, 32_767, 100_000] {
            if let Ok(granted) = model.completion_queue(entries) {
                assert!(granted >= entries && granted <= model.limits.max_cqe, "{}: {entries}", model.name);
            }
            for elements in [1, 2, 3, 6, 13, 31] {
                if let Ok((wr, sge)) = model.shared_receive_queue(entries, elements) {
                    assert!(wr >= entries && sge >= elements, "{}: {entries}, {elements}", model.name);
                }
            }
        }
    }
}

#[test]
fn whatever_is_asked_is_answered() {
    let extremes = [0, 1, u32::MAX - 1, u32::MAX];
    for model in Model::ALL {
        for value in extremes {
            let _ = model.completion_queue(value);
            for other in extremes {
                let _ = model.shared_receive_queue(value, other);
                for max_inline in extremes {
                    for service in [Service::Rc, Service::Uc, Service::Ud, Service::Xrc] {
                        let asked = Asked {
                            service,
                            max_send_wr: value,
                            max_recv_wr: other,
                            max_send_sge: other,
                            max_recv_sge: value,
                            max_inline,
                            ..ONE
                        };
                        let _ = model.queue_pair(&asked);
                    }
                }
            }
        }
    }
}

#[test]
fn a_refusal_says_who_refuses_what() {
    let refused = mlx5::MODEL.queue_pair(&Asked { max_send_wr: 8193, ..ONE }).expect_err("too long");
    assert_eq!(
        refused.to_string(),
        "mlx5 refuses this: 8193 entries of 256 B in the send queue, which has at most 32768 units of 64 B"
    );
    let refused = mlx5::MODEL.queue_pair(&Asked { max_send_sge: 31, ..ONE }).expect_err("too many");
    assert_eq!(refused.to_string(), "mlx5 refuses this: max_send_sge is 31, of at most 30");
}
