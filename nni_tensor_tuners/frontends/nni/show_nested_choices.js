// Loaded into NNI's manager by NODE_OPTIONS=--require. The web UI's page of trials stays blank once a branch of a nested choice has
// a parameter of a type that NNI itself does not have (factor, discrete, permutation): to browsers, which ask for JSON by name,
// the parameters of the branch that a trial takes are shown beside all others.
const http = require('http');
const end = http.ServerResponse.prototype.end;

const isBranch = (value) => value !== null && typeof value === 'object' && '_name' in value;
const isNested = (spec) => spec && Array.isArray(spec._value) && spec._value.some(isBranch);

function flat(parameters, prefix = '') {
    return Object.entries(parameters).reduce((all, [name, value]) => {
        if (!isBranch(value)) {
            return { ...all, [prefix + name]: value };
        }
        const { _name, ...inner } = value;
        return { ...all, [prefix + name]: _name, ...flat(inner, `${prefix}${name}.`) };
    }, {});
}

function shownExperiment(profile) {
    const space = Object.entries(profile.params.searchSpace || {});
    profile.params.searchSpace = Object.fromEntries(space.filter(([, spec]) => !isNested(spec)));
    return profile;
}

function shownTrial(job) {
    const shown = (text) => {
        const record = JSON.parse(text);
        return JSON.stringify({ ...record, parameters: flat(record.parameters) });
    };
    return job.hyperParameters ? { ...job, hyperParameters: job.hyperParameters.map(shown) } : job;
}

const SHOWN = [
    [/\/experiment$/, shownExperiment],
    [/\/trial-jobs$/, (jobs) => jobs.map(shownTrial)],
    [/\/trial-jobs\/[^/]+$/, shownTrial],
];

http.ServerResponse.prototype.end = function (chunk, ...rest) {
    const request = this.req || {};
    const path = (request.originalUrl || request.url || '').split('?')[0];
    const rule = SHOWN.find(([pattern]) => pattern.test(path));
    const byBrowser = request.method === 'GET' && ((request.headers || {}).accept || '').includes('application/json');
    if (chunk && rule && byBrowser && this.statusCode === 200 && !this.headersSent) {
        try {
            const shown = JSON.stringify(rule[1](JSON.parse(chunk.toString())));
            this.setHeader('Content-Length', Buffer.byteLength(shown));
            chunk = shown;
        } catch {
            // not what NNI 3.0 answers: shown as it is
        }
    }
    return end.call(this, chunk, ...rest);
};
