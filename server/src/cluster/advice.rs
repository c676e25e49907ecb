//! What operators should know of their cluster before it matters.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::registry::MetaPlane;

const LOOK: Duration = Duration::from_secs(5);
/// Looks that find the same before anything is said: while nodes come, there are two for a moment.
const QUIET_LOOKS: u32 = 6;

/// Whether the loss of any one voter stops all writing, although there is more than one.
fn survives_nothing(voters: usize) -> bool {
    voters == 2
}

/// Says once, as the leader of the registry, that two voters survive nothing.
pub(super) async fn keep(plane: Arc<MetaPlane>, stop: CancellationToken) {
    let mut looks = 0;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        let voters = plane.registry().nodes().filter(|node| node.voter).count();
        if !plane.is_leading() || !survives_nothing(voters) {
            looks = 0;
            continue;
        }
        looks += 1;
        if looks == QUIET_LOOKS {
            tracing::warn!(
                voters,
                "two voters survive the loss of neither: nothing can be written without both; add a third one, or make one of them \
                 a read replica"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_known_to_be_alone_and_three_survive_one() {
        let counts: Vec<usize> = (0..6).filter(|voters| survives_nothing(*voters)).collect();
        assert_eq!(counts, [2]);
    }
}
