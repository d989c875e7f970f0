// What kafkajs's own assigner gives the members of a group: one group as JSON on each line of the input, and what each
// member gets, as rows of topic and partition, on each line of the output.
'use strict'

const readline = require('node:readline')
const createAssigner = require('kafkajs/src/consumer/assigners/roundRobinAssigner')
const { MemberAssignment } = require('kafkajs/src/consumer/assignerProtocol')

async function assign({ topics, members }) {
  const findTopicPartitionMetadata = topic => [...Array(topics[topic]).keys()].map(partitionId => ({ partitionId }))
  const assigner = createAssigner({ cluster: { findTopicPartitionMetadata } })
  const given = await assigner.assign({
    members: members.map(memberId => ({ memberId })),
    topics: Object.keys(topics).sort(),
  })
  const shares = Object.fromEntries(members.map(memberId => [memberId, []]))
  for (const { memberId, memberAssignment } of given) {
    const { assignment } = MemberAssignment.decode(memberAssignment)
    shares[memberId] = Object.entries(assignment).flatMap(([topic, numbers]) => numbers.map(number => [topic, number]))
  }
  return shares
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await assign(JSON.parse(line))))
  }
}

main()
