-- Creates an OffsetResetApproval of the plan that waits, which goes with the reset.
if obj.status == nil or obj.status.phase ~= "AwaitingApproval" then
  error("no plan of this reset waits to be approved")
end
-- A script is not told who runs it: the approver is the account by which Argo CD acts, as the API server sees it.
-- Where yours has another name, change it here. Who ran the action is in Argo CD's log.
local approver = "system:serviceaccount:argocd:argocd-server"
local owner = {
  apiVersion = obj.apiVersion,
  kind = obj.kind,
  name = obj.metadata.name,
  uid = obj.metadata.uid,
}
local approval = {
  apiVersion = "tidegate.io/v1alpha1",
  kind = "OffsetResetApproval",
  metadata = {
    name = obj.metadata.name .. "-" .. obj.status.digest,
    namespace = obj.metadata.namespace,
    ownerReferences = {owner},
  },
  spec = {
    reset = obj.metadata.name,
    plan = obj.status.digest,
    approver = approver,
  },
}
return {{operation = "create", resource = approval}}
