//! Opening the doors of a node, and what probes are told of it.

use std::sync::Arc;
use std::time::Duration;

use boltq_messaging::Streams;
use tokio::net::TcpListener;
use tonic_health::ServingStatus;
use tonic_health::server::{HealthReporter, health_reporter};

use super::{Node, NodeError};
use crate::config::Config;
use crate::doors::intake::Intake;
use crate::doors::port::{Acceptor, Connections, HttpPort, MessagingPort};
use crate::doors::{grpc, http, tcp};
use crate::service::{Clustering, Kv, Queues};
use crate::telemetry::{DoorMetrics, Gauge, Via};
use crate::tls::{Dialer, PortTls};

/// How often it is looked whether a node still belongs to its cluster.
const REPORT_EVERY: Duration = Duration::from_millis(500);

/// What the doors lead to.
pub(super) struct Behind {
    pub(super) queues: Queues,
    pub(super) kv: Kv,
    /// None: there is no messaging plane.
    pub(super) streams: Option<Streams>,
    pub(super) clustering: Clustering,
    pub(super) metrics: Arc<DoorMetrics>,
}

impl Node {
    /// Opens both ports for clients.
    pub(super) async fn open_doors(
        &mut self,
        config: &Config,
        connections: Connections,
        behind: &Behind,
        (messaging, admin): (TcpListener, TcpListener),
    ) -> Result<(), NodeError> {
        let intake = Intake::new(&config.server, behind.metrics.clone());
        self.tasks.spawn(intake.clone().watch());

        let port = self.messaging_port(config, behind, intake.clone()).await?;
        let acceptor = self.acceptor(
            config,
            ("messaging", connections.messaging),
            messaging,
            &behind.metrics,
            |metrics| &metrics.messaging_connections,
        );
        let stop = self.stop.clone();
        self.doors
            .spawn(acceptor.run(move |stream| port.clone().serve(stream, stop.clone())));

        let port = self.admin_port(config, behind, intake);
        let acceptor = self.acceptor(
            config,
            ("admin", connections.admin),
            admin,
            &behind.metrics,
            |metrics| &metrics.admin_connections,
        );
        let stop = self.stop.clone();
        self.doors
            .spawn(acceptor.run(move |stream| port.clone().serve(stream, stop.clone())));
        Ok(())
    }

    /// gRPC and the binary protocol.
    async fn messaging_port(
        &mut self,
        config: &Config,
        behind: &Behind,
        intake: Arc<Intake>,
    ) -> Result<MessagingPort, NodeError> {
        let (reporter, health) = health_reporter();
        self.tell_probes(reporter, &behind.clustering).await;
        let (access, dialer) = (self.access.clone(), Dialer::new(self.tls.clone()));
        let grpc = grpc::router(
            &behind.queues.via(Via::Grpc),
            (&behind.kv, behind.streams.as_ref()),
            &behind.clustering,
            health,
            (access.clone(), dialer.clone()),
            behind.metrics.clone(),
        )?;
        let tcp = tcp::Door::new(
            behind.queues.via(Via::Binary),
            behind.clustering.clone(),
            access.clone(),
            dialer,
            &config.server,
            behind.metrics.clone(),
        );
        let tls = PortTls::messaging(self.tls.clone(), &behind.metrics);
        Ok(MessagingPort::new(tcp, grpc, intake, tls, access))
    }

    /// HTTP.
    fn admin_port(&self, config: &Config, behind: &Behind, intake: Arc<Intake>) -> HttpPort {
        let router = http::router(
            (behind.queues.via(Via::Http), behind.kv.clone()),
            behind.clustering.clone(),
            self.access.clone(),
            self.tls.clone(),
            behind.metrics.clone(),
            config,
        );
        let tls = PortTls::admin(self.tls.clone(), &behind.metrics);
        HttpPort::new(
            router,
            intake,
            tls,
            self.access.clone(),
            config.server.idle_write_timeout,
        )
    }

    /// What probes over gRPC are told, now and later.
    async fn tell_probes(&mut self, reporter: HealthReporter, clustering: &Clustering) {
        report(&reporter, true).await;
        if clustering.is_enabled() {
            self.tasks.spawn(keep_reported(reporter, clustering.clone()));
        }
    }

    fn acceptor(
        &self,
        config: &Config,
        (name, connections_max): (&'static str, usize),
        listener: TcpListener,
        metrics: &Arc<DoorMetrics>,
        open: fn(&DoorMetrics) -> &Gauge,
    ) -> Acceptor {
        Acceptor {
            name,
            listener,
            connections_max,
            grace: config.server.shutdown_grace,
            metrics: metrics.clone(),
            open,
            stop: self.stop.clone(),
        }
    }
}

/// What probes over gRPC are told.
async fn report(reporter: &HealthReporter, serves: bool) {
    let status = match serves {
        true => ServingStatus::Serving,
        false => ServingStatus::NotServing,
    };
    for service in ["", "boltq.queue.v1.QueueService"] {
        reporter.set_service_status(service, status).await;
    }
}

/// A node that was removed from its cluster does not serve.
async fn keep_reported(reporter: HealthReporter, clustering: Clustering) {
    let mut serves = true;
    loop {
        if serves == clustering.is_removed() {
            serves = !serves;
            report(&reporter, serves).await;
        }
        tokio::time::sleep(REPORT_EVERY).await;
    }
}
