//! The proof that starts a connection: both sides know the secret, and are who they are taken for.
//!
//! Each side gives a nonce of 32 random bytes that it never uses again, so that nothing that was recorded is of use
//! later. A MAC covers a label for the role of its sender, both nonces and all ids that were said, each with a fixed
//! length; so no MAC of one side can be given back to it as that of the other. The caller proves itself first: whoever
//! reaches the port gets a nonce and nothing that depends on the secret. It tells its own id and the one it looks for
//! to whatever answers at the address, which is why there is TLS.

use boltq_core::NodeId;
use boltq_proto::internal::v1::{CalledProof, CallerProof, Challenge, Hello};
use bytes::Bytes;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

use super::config::PeerSecret;

const VERSION: u32 = 1;
const NONCE_BYTES: usize = 32;
const CALLER_LABEL: &[u8; 24] = b"boltq peer proof, caller";
const CALLED_LABEL: &[u8; 24] = b"boltq peer proof, called";
/// Stands for whoever is at an address.
pub(super) const ANY_NODE: NodeId = NodeId(0);

/// Why a connection is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProofError {
    #[error("the other node speaks version {0} of the protocol between nodes, this one {VERSION}")]
    Version(u32),
    #[error("a step of the proof is malformed or out of order")]
    Malformed,
    #[error("the secrets differ, or the other node has none: every node of a cluster needs the same one")]
    Secret,
    #[error("the other node uses a cluster secret and this one has none: every node of a cluster needs the same one")]
    NoSecretHere,
    #[error("node {wanted:016x} is wanted, but this address belongs to node {found:016x}")]
    OtherNode { wanted: u64, found: u64 },
    #[error("the node belongs to cluster {theirs:016x}, this one to {ours:016x}")]
    OtherCluster { theirs: u64, ours: u64 },
    #[error("the system gives no random numbers")]
    Random,
}

/// Who takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Party {
    pub(super) node: NodeId,
    /// 0: none yet.
    pub(super) cluster: u64,
}

impl Party {
    /// Nodes of two clusters do not speak; a node without one speaks with all, to join.
    fn may_speak_with(self, other: Self) -> Result<(), ProofError> {
        if self.cluster != 0 && other.cluster != 0 && self.cluster != other.cluster {
            return Err(ProofError::OtherCluster {
                theirs: other.cluster,
                ours: self.cluster,
            });
        }
        Ok(())
    }
}

type Nonce = [u8; NONCE_BYTES];

fn new_nonce() -> Result<Nonce, ProofError> {
    let mut nonce = [0; NONCE_BYTES];
    SystemRandom::new().fill(&mut nonce).map_err(|_| ProofError::Random)?;
    Ok(nonce)
}

fn read_nonce(bytes: &[u8]) -> Result<Nonce, ProofError> {
    bytes.try_into().map_err(|_| ProofError::Malformed)
}

/// What was said so far, as MACs cover it.
struct Transcript {
    caller_nonce: Nonce,
    called_nonce: Nonce,
    caller: Party,
    wanted: NodeId,
}

impl Transcript {
    fn of_caller(&self) -> Vec<u8> {
        self.bytes(CALLER_LABEL)
    }

    fn of_called(&self, called: Party) -> Vec<u8> {
        let mut bytes = self.bytes(CALLED_LABEL);
        bytes.extend(called.node.0.to_be_bytes());
        bytes.extend(called.cluster.to_be_bytes());
        bytes
    }

    fn bytes(&self, label: &[u8; 24]) -> Vec<u8> {
        let mut bytes = label.to_vec();
        bytes.extend(self.caller_nonce);
        bytes.extend(self.called_nonce);
        for id in [self.caller.node.0, self.caller.cluster, self.wanted.0] {
            bytes.extend(id.to_be_bytes());
        }
        bytes
    }
}

fn sign(secret: Option<&PeerSecret>, transcript: &[u8]) -> Bytes {
    secret.map_or_else(Bytes::new, |secret| {
        Bytes::copy_from_slice(hmac::sign(&secret.0, transcript).as_ref())
    })
}

/// Compares in constant time.
fn verify(secret: Option<&PeerSecret>, transcript: &[u8], mac: &[u8]) -> Result<(), ProofError> {
    match secret {
        Some(secret) => hmac::verify(&secret.0, transcript, mac).map_err(|_| ProofError::Secret),
        None if mac.is_empty() => Ok(()),
        None => Err(ProofError::NoSecretHere),
    }
}

/// The side that connects, after its hello.
pub(super) struct Caller<'a> {
    secret: Option<&'a PeerSecret>,
    own: Party,
    wanted: NodeId,
    nonce: Nonce,
}

impl<'a> Caller<'a> {
    pub(super) fn hello(
        secret: Option<&'a PeerSecret>,
        own: Party,
        wanted: NodeId,
    ) -> Result<(Self, Hello), ProofError> {
        let nonce = new_nonce()?;
        let hello = Hello {
            version: VERSION,
            nonce: Bytes::copy_from_slice(&nonce),
        };
        let caller = Self {
            secret,
            own,
            wanted,
            nonce,
        };
        Ok((caller, hello))
    }

    pub(super) fn prove(self, challenge: &Challenge) -> Result<(Proved<'a>, CallerProof), ProofError> {
        let transcript = Transcript {
            caller_nonce: self.nonce,
            called_nonce: read_nonce(&challenge.nonce)?,
            caller: self.own,
            wanted: self.wanted,
        };
        let proof = CallerProof {
            node: self.own.node.0,
            cluster: self.own.cluster,
            wanted: self.wanted.0,
            mac: sign(self.secret, &transcript.of_caller()),
        };
        let proved = Proved {
            secret: self.secret,
            transcript,
        };
        Ok((proved, proof))
    }
}

/// The side that connects, after its proof.
pub(super) struct Proved<'a> {
    secret: Option<&'a PeerSecret>,
    transcript: Transcript,
}

impl Proved<'_> {
    /// Who is at the other end.
    pub(super) fn accept(self, proof: &CalledProof) -> Result<Party, ProofError> {
        let called = Party {
            node: NodeId(proof.node),
            cluster: proof.cluster,
        };
        verify(self.secret, &self.transcript.of_called(called), &proof.mac)?;
        let wanted = self.transcript.wanted;
        if wanted != ANY_NODE && wanted != called.node {
            return Err(ProofError::OtherNode {
                wanted: wanted.0,
                found: called.node.0,
            });
        }
        self.transcript.caller.may_speak_with(called)?;
        Ok(called)
    }
}

/// The side that is connected to, after the hello of the other.
pub(super) struct Called {
    caller_nonce: Nonce,
    nonce: Nonce,
}

impl Called {
    pub(super) fn challenge(hello: &Hello) -> Result<(Self, Challenge), ProofError> {
        if hello.version != VERSION {
            return Err(ProofError::Version(hello.version));
        }
        let called = Self {
            caller_nonce: read_nonce(&hello.nonce)?,
            nonce: new_nonce()?,
        };
        let challenge = Challenge {
            nonce: Bytes::copy_from_slice(&called.nonce),
        };
        Ok((called, challenge))
    }

    /// Who calls, and the proof for it.
    pub(super) fn accept(
        self,
        secret: Option<&PeerSecret>,
        own: Party,
        proof: &CallerProof,
    ) -> Result<(Party, CalledProof), ProofError> {
        let caller = Party {
            node: NodeId(proof.node),
            cluster: proof.cluster,
        };
        let transcript = Transcript {
            caller_nonce: self.caller_nonce,
            called_nonce: self.nonce,
            caller,
            wanted: NodeId(proof.wanted),
        };
        verify(secret, &transcript.of_caller(), &proof.mac)?;
        if transcript.wanted != ANY_NODE && transcript.wanted != own.node {
            return Err(ProofError::OtherNode {
                wanted: proof.wanted,
                found: own.node.0,
            });
        }
        own.may_speak_with(caller)?;
        let answer = CalledProof {
            node: own.node.0,
            cluster: own.cluster,
            mac: sign(secret, &transcript.of_called(own)),
        };
        Ok((caller, answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Party = Party {
        node: NodeId(1),
        cluster: 7,
    };
    const TWO: Party = Party {
        node: NodeId(2),
        cluster: 7,
    };

    fn secret(text: &str) -> PeerSecret {
        PeerSecret::new(text)
    }

    /// What both sides end with when node 1 calls `wanted` and reaches node 2.
    fn run(
        of_caller: Option<&PeerSecret>,
        of_called: Option<&PeerSecret>,
        wanted: NodeId,
    ) -> Result<(Party, Party), ProofError> {
        let (caller, hello) = Caller::hello(of_caller, ONE, wanted)?;
        let (called, challenge) = Called::challenge(&hello)?;
        let (caller, proof) = caller.prove(&challenge)?;
        let (seen, proof) = called.accept(of_called, TWO, &proof)?;
        Ok((caller.accept(&proof)?, seen))
    }

    #[test]
    fn equal_secrets_prove_both_sides_to_each_other() {
        let key = secret("k");
        for wanted in [TWO.node, ANY_NODE] {
            assert_eq!(run(Some(&key), Some(&key), wanted), Ok((TWO, ONE)));
            assert_eq!(run(None, None, wanted), Ok((TWO, ONE)));
        }
    }

    #[test]
    fn other_secrets_are_refused_and_said_to_be_the_cause() {
        let (key, other) = (secret("k"), secret("K"));
        assert_eq!(run(Some(&other), Some(&key), TWO.node), Err(ProofError::Secret));
        assert_eq!(run(None, Some(&key), TWO.node), Err(ProofError::Secret));
        assert_eq!(run(Some(&key), None, TWO.node), Err(ProofError::NoSecretHere));
    }

    #[test]
    fn a_wrong_secret_does_not_learn_whom_it_reached() {
        let key = secret("k");
        assert_eq!(run(None, Some(&key), NodeId(3)), Err(ProofError::Secret));
        let error = run(Some(&key), Some(&key), NodeId(3));
        assert_eq!(error, Err(ProofError::OtherNode { wanted: 3, found: 2 }));
    }

    #[test]
    fn a_recorded_proof_does_not_fit_another_challenge() {
        let key = secret("k");
        let (caller, hello) = Caller::hello(Some(&key), ONE, TWO.node).unwrap();
        let (called, challenge) = Called::challenge(&hello).unwrap();
        let (_, recorded) = caller.prove(&challenge).unwrap();
        called.accept(Some(&key), TWO, &recorded).unwrap();
        let (again, _) = Called::challenge(&hello).unwrap();
        let error = again.accept(Some(&key), TWO, &recorded).unwrap_err();
        assert_eq!(error, ProofError::Secret);
    }

    #[test]
    fn a_mac_is_of_no_use_in_the_other_role_or_with_other_ids() {
        let key = secret("k");
        let (caller, hello) = Caller::hello(Some(&key), ONE, TWO.node).unwrap();
        let (called, challenge) = Called::challenge(&hello).unwrap();
        let (proved, proof) = caller.prove(&challenge).unwrap();
        for change in [
            |proof: &mut CallerProof| proof.node = 3,
            |proof: &mut CallerProof| proof.cluster = 0,
            |proof: &mut CallerProof| proof.wanted = 0,
            |proof: &mut CallerProof| proof.mac = proof.mac.slice(..31),
        ] {
            let mut changed = proof.clone();
            change(&mut changed);
            let called = Called {
                caller_nonce: called.caller_nonce,
                nonce: called.nonce,
            };
            assert_eq!(
                called.accept(Some(&key), TWO, &changed).unwrap_err(),
                ProofError::Secret
            );
        }
        let reflected = CalledProof {
            node: 1,
            cluster: 7,
            mac: proof.mac,
        };
        assert_eq!(proved.accept(&reflected).unwrap_err(), ProofError::Secret);
    }

    #[test]
    fn a_node_that_cannot_prove_itself_is_not_spoken_to() {
        let (key, other) = (secret("k"), secret("other"));
        for of_called in [None, Some(&other)] {
            let (caller, hello) = Caller::hello(Some(&key), ONE, TWO.node).unwrap();
            let (called, challenge) = Called::challenge(&hello).unwrap();
            let (caller, mut proof) = caller.prove(&challenge).unwrap();
            if of_called.is_none() {
                proof.mac = Bytes::new();
            } else {
                let transcript = Transcript {
                    caller_nonce: called.caller_nonce,
                    called_nonce: called.nonce,
                    caller: ONE,
                    wanted: TWO.node,
                };
                proof.mac = sign(of_called, &transcript.of_caller());
            }
            let (_, answer) = called.accept(of_called, TWO, &proof).unwrap();
            assert_eq!(caller.accept(&answer).unwrap_err(), ProofError::Secret);
        }
    }

    #[test]
    fn nodes_of_two_clusters_do_not_speak_but_a_node_of_none_does() {
        let foreign = Party {
            node: NodeId(1),
            cluster: 8,
        };
        assert_eq!(
            foreign.may_speak_with(TWO),
            Err(ProofError::OtherCluster { theirs: 7, ours: 8 })
        );
        let fresh = Party { cluster: 0, ..foreign };
        assert_eq!(fresh.may_speak_with(TWO), Ok(()));
        assert_eq!(TWO.may_speak_with(fresh), Ok(()));
    }

    #[test]
    fn malformed_steps_are_refused() {
        let (caller, hello) = Caller::hello(None, ONE, ANY_NODE).unwrap();
        let short = Hello {
            nonce: hello.nonce.slice(1..),
            ..hello.clone()
        };
        assert!(matches!(Called::challenge(&short), Err(ProofError::Malformed)));
        let newer = Hello { version: 2, ..hello };
        assert!(matches!(Called::challenge(&newer), Err(ProofError::Version(2))));
        let empty = Challenge::default();
        assert!(matches!(caller.prove(&empty), Err(ProofError::Malformed)));
    }
}
