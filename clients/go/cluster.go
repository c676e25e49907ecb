package boltq

import (
	"context"

	adminv1 "github.com/boltq/boltq/clients/go/gen/boltq/admin/v1"
	clusterv1 "github.com/boltq/boltq/clients/go/gen/boltq/cluster/v1"
)

// Stats has the counters and totals of the node that is asked.
func (c *Client) Stats(ctx context.Context, opts ...ReadOption) (*adminv1.GetStatsResponse, error) {
	return invoke(ctx, c, always, adminv1.NewAdminServiceClient, adminv1.AdminServiceClient.GetStats, &adminv1.GetStatsRequest{Linearizable: linearizable(opts)})
}

// ClusterStatus has the cluster as the node that is asked sees it: nodes, groups, and who leads them.
func (c *Client) ClusterStatus(ctx context.Context) (*clusterv1.GetStatusResponse, error) {
	return invoke(ctx, c, always, cluster, clusterv1.ClusterServiceClient.GetStatus, &clusterv1.GetStatusRequest{})
}

// JoinCluster takes a node into the cluster: it has to run, and to be reached at this Raft address. A read replica gets
// everything and does not vote.
func (c *Client) JoinCluster(ctx context.Context, raftAddress string, readReplica bool) (*clusterv1.JoinResponse, error) {
	return invoke(ctx, c, ifNotApplied, cluster, clusterv1.ClusterServiceClient.Join, &clusterv1.JoinRequest{Address: raftAddress, NonVoter: readReplica})
}

// LeaveCluster takes a node out of the cluster for good, by its name.
func (c *Client) LeaveCluster(ctx context.Context, node string) (*clusterv1.LeaveResponse, error) {
	return invoke(ctx, c, ifNotApplied, cluster, clusterv1.ClusterServiceClient.Leave, &clusterv1.LeaveRequest{NodeId: node})
}

// TransferLeadership hands a group over to another node, or to whichever has most of its log if node is empty, and returns
// the node that leads then.
func (c *Client) TransferLeadership(ctx context.Context, group, node string) (*clusterv1.Node, error) {
	answer, err := invoke(ctx, c, ifNotApplied, cluster, clusterv1.ClusterServiceClient.TransferLeadership, &clusterv1.TransferLeadershipRequest{Group: group, NodeId: node})
	return answer.GetLeader(), err
}
