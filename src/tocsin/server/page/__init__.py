"""The live page at `/`: plain HTML, CSS and ES modules over `/v1`, with nothing to build and nothing to load.

    static/index.html   what is shown at once
    static/style.css    light and dark
    static/main.js      places and keys; the other modules are a place or a part each:
        api.js            requests, tokens, following
        dom.js            elements
        editor.js         the SQL editor; sql_text.js colours it
        query.js          a query: errors at their place, trials on rows, backtest, registering
        chart.js          matches over time
        list.js           subscriptions, by page, sorted by the server
        detail.js         one subscription: its content as rows enter and leave, reasons, actions
        feed.js           deltas as they come
        data.js           streams, tables, publishing
        state.js          the server, tenants, tokens
        copy_as.js        the same as curl and Python

The page has no rights of its own: it does what its token allows, by the routes that everybody has.
"""
